"""The page in Airflow: what tasks and watchers keep for it, and the routes that read it.

The API server reaches no storage. So `keep.py` keeps a snapshot of each job (`streambank.overview`) in
Airflow's own database, by `store.py`; `rows.py` reads it there, `rights.py` says who may see it, and
`routes.py` answers.
"""
