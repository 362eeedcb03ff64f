"""The code of a job: what its drivers run, kept so that it can run again.

* `program`: the application and the modules that it imports from its own folder, by what is in them
* `kept`: copies of programs among the job's records, and how one runs again
* `code`: program, arguments, settings and Spark together, and in what two of them differ
* `chosen`: which code counts where that is not what the job declares
* `vouched`: what this user has run or chosen, which proves it where records are not signed
"""
