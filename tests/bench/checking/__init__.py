"""How fast histories are judged, beside Porcupine; how fast they are written."""
