"""What tests of the page share: a browser, the jobs that it shows, and an Airflow to visit."""
