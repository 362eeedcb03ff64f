"""The parts of docker-compose.yml as packages on one machine, all on loopback: no container, no Docker.

Postgres, Kafka, an S3 server, a Spark cluster and Airflow's four processes, kept by the demo's keeper.
`make stack` starts them and leaves them running, `make stack-down` ends them, `make test-stack` tells the
demo's story on them while parts are killed. All that is written is below `.streambank/stack/`.
"""
