"""Pictures of Streambank's page for the docs, taken by a real Chromium from what the demo's jobs have done.

`make screenshots` plays the demo's story up to the drill, lets a second job fail, and then
opens each view of the page in both themes. What the pictures show has happened: nothing is written into
Airflow's database or a job's records for them.
"""
