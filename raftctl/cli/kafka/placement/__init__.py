"""Commands for where partitions lie and which replica leads them.

`elect_leaders` asks for elections, `reassign_partitions` moves replicas by a plan. The plan is
made by the placement rules of the controller and its file has the form of Kafka's own tool.
"""
