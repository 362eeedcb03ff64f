"""The forms of the generated DAGs: what a person may say when triggering one, with defaults that are right.

Optional answers are nullable, since Airflow's form asks for a text whose schema is a plain string. What
matters stands without a `section`, because the form keeps every named section closed. What a field means is
Markdown, which Airflow shows only where the field has no plain `description`.
"""
