"""Kafka, as source and as sink of a query: what a savepoint records of it, and what a restore must know.

* `offsets`: the offsets that Spark writes into a checkpoint
* `broker`: what is asked of a cluster; `client` asks a real one, by `confluent-kafka`, which only it loads
* `settings`: how a cluster is reached, and by whose word; `patience`: how long it is waited for
* `recording`: what a savepoint keeps
* `topics`: whether a topic is the one that was read; `pattern`: which topics a subscription finds
* `source`, `sink`: what going back would lose, and what it would repeat
* `retention`: until when a savepoint's input can be read again
"""
