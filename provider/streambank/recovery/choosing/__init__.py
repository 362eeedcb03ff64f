"""Choosing: which savepoint a reference means, and which repository or replica it comes from.

* `resolve`: of one query, in one repository; `older`: what comes next where that one is damaged
* `nearest`: of one query, in whichever place has it undamaged
* `together`: of all queries of a job, so that they belong together
"""
