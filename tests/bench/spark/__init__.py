"""How fast Spark judges histories of which it is known what is wrong."""
