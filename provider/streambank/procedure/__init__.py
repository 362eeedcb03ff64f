"""Long operations: an upgrade, a drill, a refresh, a fail-over; and how each of them survives a crash.

A long operation takes minutes, and its process, its host or the storage may fail at any call. Nothing runs in
the background that would clean up. The answer is the same everywhere:

1. *Ask first.* What speaks against it is found before anything is stopped or written. Where there is a plan,
   it calls the same checks, and writes nothing. A plan that was approved is held against how things are then:
   where more would go or be lost, nothing is done (`approval-outdated`, `recovery/shown.py`).
2. *One at a time.* The operation holds a claim or the job's operation lock, with a heartbeat. Who finds that
   its owner has died takes it over. An owner that was only slow is refused by `check()`, which comes before
   each write that counts. A drill needs neither: all that it writes is below a scratch of its own.
3. *Say it, then do it.* Before it writes outside the records, a record says what and where. A record is
   created under the next number and never replaced, so of two writers one loses.
4. *One write decides.* Until then what was before counts, and after it what is new. All that follows may be
   done twice.
5. *The next one finishes.* The same call again, the retry of a task, or a start reads the records, and goes
   on or cleans up.
6. *Waiting needs no process.* Where only time has to pass, and everything is in the records, the wait may be
   left (`leave`): no claim is held, and somebody goes on later. That is so of the watch of an upgrade.
   A drill, and the start at the end of a fail-over, are waited for: what they measure is how long they take,
   and of a drill nobody else would end the driver and remove the copy.

Which write decides, and what is done about a crash before it, and after it:

* refresh (`copies`): a record in `refreshed/`. The copy is as it was, and the next refresh removes what
  `refreshes/` says was filled. After it the next start or refresh brings the generations to it.
* drill (`drills`): its report in `drills/`. Nothing of it counts, and a later drill ends its driver and
  removes its scratch. A round goes on with the savepoints of which there is no report (`drills/each.py`).
* upgrade (`upgrade`): the choice of the new code. The old code runs or is started, and the same upgrade goes
  on with the stop. After it the new code is started and watched. The way back is decided by the choice of the
  old code, in the same way. `upgrades/` says how far it has come.
* fail-over (`failover`): the record `active` in both sites. Once `failing-over` is recorded no site starts,
  and the next run restores. After it the next run starts the job.
* restore (`recovery`), a part of most of them: the record of the next generation. The checkpoint that counts
  is as it was, and the same restore again fills another directory. A rollback of sinks is noted first, and so
  is which queries are restored as one: no driver starts before a restore has finished that.
* exchange of state (`recovery/exchange_state.py`): the restore of what was made of the last savepoint. The
  job is stopped, and a start goes on with the state that counts by then.

Which errors are a result, and which are raised, differs; so do resume and undo, which are methods of each.
"""
