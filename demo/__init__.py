"""The demo: one story about real flights, told by a real Airflow and a real Spark on this machine.

`make demo` tells it to the end and cleans up; `make up` tells the same and leaves everything running to click
in; `make down` ends that. All it writes is below `.streambank/demo/`, and it listens on loopback only.
"""
