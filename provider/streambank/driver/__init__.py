"""The driver of a job: what it is launched with, what must hold before, and where it is found again.

* `spec`: what is launched; `prepare`, `preflight`, `outputs`, `damage`: what is asked before
* `connections`: where it runs, if a connection says so; `redirected`: where a copy of a query writes
* `installed`, `environment`, `log`: what a driver process has, and what it leaves
* `location`: where the drivers of a job are known to be; `launchers`: one module for each kind of master
"""
