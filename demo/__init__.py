"""The demo: one story about real flights, played by a real Airflow and a real Spark on this machine.

`make demo` plays it to the end and cleans up; `make up` plays the same and leaves everything running to click
through; `make down` ends that. Everything is written to `.streambank/demo/`, and only loopback is used.
"""
