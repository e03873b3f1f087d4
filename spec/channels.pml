// Channels: the rules of rules.md that concern order, leases, commits and crashes, in the small
// case, for an exhaustive search.
//
//     caller ──push, cancel────────►┌──────────┐──record──► tail ──sync──► kept
//     worker ◄─start, reply─────────│  engine  │                            │
//            ──done, fail, release─►└──────────┘◄──────────replay───────────┘
//
// `job`, `state`, `ready` and `lease` are the engine's memory. `kept` is the log as far as it is
// durable, folded; `tail` is what has been written and not synced. A crash loses all but `kept`.
// Each step of the engine is one d_step, as the core takes one command at a time, and ends with
// check().
//
// Time is not modelled: timers may fire at any moment, in any order. A job's number is its
// position. Tokens are only ever compared, so a token that no worker holds any more can be issued
// again. TAKE is answered, and STALE and CANCELLED are sent, without waiting for the log: rule 21
// is stricter, so the search covers more than can happen.
//
// Runs are finite (attempts, crashes and releases are bounded). So "every job ends" is: there is no
// cycle (the search with -DNP), and nothing stops before all work has ended (finish).
//
// -DDEEP and -DWIDE are larger cases. PLANT in the environment of pan is the number of a mistake.

#if defined(DEEP)
#define KEYED 3 // jobs of channel 0; each of the others has a channel of its own
#define JOBS 4
#elif defined(WIDE)
#define KEYED 2
#define JOBS 4
#else
#define KEYED 2
#define JOBS 3
#endif
#define CHANNELS (JOBS - KEYED + 1)
#define CHANNEL(j) ((j) < KEYED -> 0 : (j) - KEYED + 1)
#define IN_TURN(j) ((j) == 0 || (j) >= KEYED || job[(j) - 1].status != NONE)
#define MAY_CANCEL(j) ((j) < KEYED - 1)
#define MAY_EXPIRE(j) ((j) == KEYED - 1)
#define PARENT 0           // its commit emits
#define CHILD (JOBS - 1)   // this job
#define BLOCK(w) (2 - (w)) // one worker takes blocks, the other single jobs

#ifndef ATTEMPTS
#define ATTEMPTS 2
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#ifndef RELEASES
#define RELEASES 1
#endif
#ifndef TAIL
#define TAIL 2 // records that may wait for a sync
#endif

// Mistakes that the search must find: they prove that it would notice them.
#define PLANT_NO_FENCE 1       // a commit's token is not looked at
#define PLANT_OVERTAKE 2       // a failed job goes to the tail of its channel
#define PLANT_REPLY_EARLY 3    // replies do not wait for the log
#define PLANT_DORMANT_EARLY 4  // a channel emptied by start is dormant before its end
#define PLANT_DOUBLE_READY 5   // a delivery to a ready channel makes it ready again
#define PLANT_READY_LEASED 6   // a delivery to a channel in progress makes it ready
#define PLANT_EMPTY_READY 7    // a channel emptied by a cancel stays ready
#define PLANT_PARKED_STAYS 8   // a channel stays parked for a head that was cancelled
#define PLANT_COMMIT_ENDED 9   // a cancelled job's commit is recorded
#define PLANT_CANCEL_FREES 10  // a cancelled job's channel moves on before the worker lets go
#define PLANT_TOKEN_AGAIN 11   // tokens begin anew after a crash
#define PLANT_REPEAT_STALE 12  // a repeated commit is judged by its lease
#define PLANT_EMIT_APART 13    // what a commit emits is a record of its own
#define PLANT_NEVER_DUE 14     // a parked channel is forgotten
#define PLANT_REPLAY_TAIL 15   // a restart returns running jobs to the tail
#define PLANT_SYNC_SHUFFLED 16 // a record may survive without an earlier one
#define PLANT_END_FORGOTTEN 17 // a lease lost with its connection leaves its channel in progress
#define PLANT_NEVER_DEAD 18    // failed attempts are not counted: a cycle
#define PLANTED(mistake) (planted == PLANT_##mistake)

// Prints a name when the search first comes here: a rule that never applied proves nothing.
#define MET(name) c_code { { static int met; if (!met) { met = 1; printf("met " #name "\n"); } } }

// Job status. Above LIVE it has ended.
#define NONE 0
#define LIVE 1 // waiting or running
#define DONE 2
#define DEAD 3
#define CANCELLED 4
#define EXPIRED 5
#define NO_JOB JOBS

// Channel states.
#define DORMANT 0
#define READY 1
#define IN_PROGRESS 2
#define PARKED 3

// The phases of a worker.
#define IDLE 0
#define RUN 1    // a handler runs, or has just ended
#define SENT 2   // DONE was accepted; the reply is still to come
#define UNSURE 3 // the reply was lost
#define RESENT 4 // DONE was repeated

typedef Job { byte status; byte tries; byte token; bit late }; // late: for planted mistakes only
typedef Record { byte status; byte job; byte token }; // LIVE: a push; NONE: a failed attempt
typedef Lease { byte token; byte channel; byte set }; // set: the jobs not yet answered
typedef Worker { byte phase; byte token; byte channel; byte set; bit lost }; // what it believes

byte planted;
byte crashes_left, releases_left = RELEASES;
Job job[JOBS], kept[JOBS];
Record tail[TAIL];
byte tail_count;
byte state[CHANNELS], parked_for[CHANNELS];
byte ready[CHANNELS + 1], ready_count;
Lease lease[2]; // by the worker that took it
Worker worker[2];
byte promised[JOBS]; // the status that a reply confirmed

hidden byte i, n, at, head, front, other, fresh, holder;

#define ROOM (tail_count < TAIL)
#define HAS(set, j) ((set) & (1 << (j)))
#define FIRST(set) \
    (HAS(set, 0) -> 0 : (HAS(set, 1) -> 1 : (HAS(set, 2) -> 2 : (HAS(set, 3) -> 3 : 4))))
#define LEASED(c) \
    ((lease[0].token && lease[0].channel == c) + (lease[1].token && lease[1].channel == c))
#define CURRENT(w) (lease[w].token && lease[w].token == worker[w].token)
#define LEASED_AS(t) (lease[0].token == (t) || lease[1].token == (t))
#define HELD(t) (worker[0].token == (t) || worker[1].token == (t))
#define AWAITED(w) FIRST(worker[w].set)

// ---- What always holds ------------------------------------------------------------------------

inline check() {
    // C1: the states partition the channels, and say whether there is work.
    for (n : 0 .. CHANNELS - 1) {
        at = 0;
        for (i : 0 .. CHANNELS) {
            if
            :: i < ready_count && ready[i] == n -> at++
            :: else
            fi
        }
        find_head(n);
        assert(at <= 1);
        assert((at == 1) == (state[n] == READY));
        assert(LEASED(n) <= 1);
        assert((LEASED(n) == 1) == (state[n] == IN_PROGRESS));
        assert(state[n] != DORMANT || head == NO_JOB);
        assert(state[n] != READY || head != NO_JOB);
        assert(state[n] != PARKED || head != NO_JOB);
        assert(state[n] != PARKED || parked_for[n] == head)
    }
    // C7: no job is done before all earlier ones of its channel have ended, here and in the log.
    n = 0;
    at = 0;
    for (i : 0 .. KEYED - 1) {
        n = n || job[i].status <= LIVE;
        at = at || kept[i].status <= LIVE;
        assert(!n || job[i].status != DONE);
        assert(!at || kept[i].status != DONE)
    }
    // C7: two handlers of one channel run only if one of them has lost its lease.
    assert(worker[0].phase != RUN || worker[1].phase != RUN || worker[0].lost || worker[1].lost ||
           worker[0].channel != worker[1].channel);
    // Rule 10: a commit and what it emits are one.
    assert((job[PARENT].status == DONE) == (job[CHILD].status != NONE));
    assert((kept[PARENT].status == DONE) == (kept[CHILD].status != NONE))
}

// Rule 21: what a reply confirmed still holds.
inline check_promises() {
    for (i : 0 .. JOBS - 1) {
        assert(promised[i] == NONE || job[i].status != NONE);
        assert(promised[i] <= LIVE || job[i].status == promised[i])
    }
}

// ---- The engine -------------------------------------------------------------------------------

// head: the first live job of a channel.
inline find_head(c) {
    head = NO_JOB;
    for (i : 0 .. JOBS - 1) {
        if
        :: CHANNEL(i) == c && job[i].status == LIVE &&
           (head == NO_JOB || (job[head].late && !job[i].late)) -> head = i
        :: else
        fi
    }
}

// The only way from one channel state to another.
inline move(c, to) {
    if
    :: state[c] == READY ->
        at = 0;
        do
        :: ready[at] != c -> at++
        :: else -> break
        od;
        ready_count--;
        do
        :: at < ready_count -> ready[at] = ready[at + 1]; at++
        :: else -> ready[at] = 0; break
        od
    :: else
    fi;
    if
    :: to == READY -> ready[ready_count] = c; ready_count++
    :: else
    fi;
    parked_for[c] = 0;
    state[c] = to
}

// Work or none decides where a channel goes that is no longer held.
inline settle(c) {
    find_head(c);
    if
    :: head == NO_JOB -> move(c, DORMANT); MET(end_dormant)
    :: else -> move(c, READY); MET(end_ready)
    fi
}

inline park(c) {
    find_head(c);
    move(c, PARKED);
    parked_for[c] = head
}

inline write(what, j, by) {
    tail[tail_count].status = what;
    tail[tail_count].job = j;
    tail[tail_count].token = by;
    tail_count++;
    if
    :: PLANTED(REPLY_EARLY) && what != NONE -> promised[j] = what
    :: else
    fi
}

inline deliver(j) {
    assert(job[j].status == NONE);
    job[j].status = LIVE;
    if
    :: state[CHANNEL(j)] == DORMANT -> move(CHANNEL(j), READY); MET(deliver_dormant)
    :: state[CHANNEL(j)] == READY ->
        MET(deliver_ready);
        if
        :: PLANTED(DOUBLE_READY) -> ready[ready_count] = CHANNEL(j); ready_count++
        :: else
        fi
    :: state[CHANNEL(j)] == IN_PROGRESS ->
        MET(deliver_in_progress);
        if
        :: PLANTED(READY_LEASED) -> move(CHANNEL(j), READY)
        :: else
        fi
    :: state[CHANNEL(j)] == PARKED -> MET(deliver_parked)
    fi
}

// The one place where a job ends, and it ends once.
inline end_job(j, how, by) {
    assert(job[j].status == LIVE);
    job[j].status = how;
    job[j].tries = 0;
    job[j].token = by;
    job[j].late = 0;
    write(how, j, by)
}

inline count_attempt(j) {
    if
    :: PLANTED(NEVER_DEAD)
    :: !PLANTED(NEVER_DEAD) && job[j].tries + 1 == ATTEMPTS -> end_job(j, DEAD, 0); MET(dead)
    :: else -> job[j].tries++; write(NONE, j, 0); MET(failed)
    fi
}

inline forget_lease(w) {
    lease[w].token = 0;
    lease[w].channel = 0;
    lease[w].set = 0
}

// A lease ends with a failed attempt of its first unanswered job: by FAIL, by time, or with its
// connection (then without backoff). If that job has been cancelled meanwhile, none counts.
inline end_failed(w, backoff) {
    front = FIRST(lease[w].set);
    n = lease[w].channel;
    forget_lease(w);
    if
    :: job[front].status != LIVE -> settle(n); MET(failed_cancelled)
    :: else ->
        count_attempt(front);
        if
        :: PLANTED(END_FORGOTTEN) && !backoff
        :: PLANTED(OVERTAKE) && job[front].status == LIVE -> job[front].late = 1; settle(n)
        :: else ->
            if
            :: backoff && job[front].status == LIVE -> park(n); MET(failed_parked)
            :: else -> settle(n)
            fi
        fi
    fi
}

// The job is cancelled or expired. If it is leased, its channel waits for the worker.
inline withdraw(j, how) {
    n = CHANNEL(j);
    end_job(j, how, 0);
    if
    :: HAS(lease[0].set | lease[1].set, j) ->
        MET(withdrawn_leased);
        if
        :: PLANTED(CANCEL_FREES) ->
            holder = (HAS(lease[0].set, j) -> 0 : 1);
            lease[holder].set = lease[holder].set & ~(1 << j);
            if
            :: lease[holder].set == 0 -> forget_lease(holder); settle(n)
            :: else
            fi
        :: else
        fi
    :: !HAS(lease[0].set | lease[1].set, j) && state[n] == READY ->
        find_head(n);
        if
        :: head == NO_JOB && !PLANTED(EMPTY_READY) -> move(n, DORMANT); MET(withdrawn_only)
        :: else -> MET(withdrawn_ready)
        fi
    :: !HAS(lease[0].set | lease[1].set, j) && state[n] == PARKED ->
        if
        :: parked_for[n] == j && !PLANTED(PARKED_STAYS) -> settle(n); MET(withdrawn_parked_head)
        :: else -> MET(withdrawn_parked)
        fi
    :: else -> MET(withdrawn_behind_lease)
    fi
}

// The oldest record becomes durable, and the replies that waited for it are sent.
inline keep() {
    n = tail[0].job;
    if
    :: tail[0].status == NONE -> kept[n].tries++
    :: tail[0].status == LIVE -> assert(kept[n].status == NONE); kept[n].status = LIVE
    :: else ->
        assert(kept[n].status == LIVE);
        kept[n].status = tail[0].status;
        kept[n].tries = 0;
        kept[n].token = tail[0].token;
        if
        :: n == PARENT && kept[n].status == DONE && !PLANTED(EMIT_APART) ->
            kept[CHILD].status = LIVE
        :: else
        fi
    fi;
    if
    :: tail[0].status != NONE -> promised[n] = tail[0].status
    :: else
    fi;
    tail_count--;
    for (i : 0 .. TAIL - 2) {
        tail[i].status = tail[i + 1].status;
        tail[i].job = tail[i + 1].job;
        tail[i].token = tail[i + 1].token
    }
    tail[TAIL - 1].status = 0;
    tail[TAIL - 1].job = 0;
    tail[TAIL - 1].token = 0
}

inline swap_tail() {
    at = tail[0].status; tail[0].status = tail[1].status; tail[1].status = at;
    at = tail[0].job; tail[0].job = tail[1].job; tail[1].job = at;
    at = tail[0].token; tail[0].token = tail[1].token; tail[1].token = at
}

// Memory is gone; the log is read again. Workers keep what they believe, and their tokens.
inline replay() {
    for (i : 0 .. JOBS - 1) {
        job[i].status = kept[i].status;
        job[i].tries = kept[i].tries;
        job[i].token = kept[i].token;
        job[i].late = 0
    }
    for (i : 0 .. TAIL - 1) {
        tail[i].status = 0;
        tail[i].job = 0;
        tail[i].token = 0
    }
    tail_count = 0;
    for (i : 0 .. 1) {
        forget_lease(i);
        worker[i].lost = worker[i].phase != IDLE;
        if
        :: worker[i].phase == SENT || worker[i].phase == RESENT -> worker[i].phase = UNSURE
        :: else
        fi
    }
}

inline order_channels() {
    for (n : 0 .. CHANNELS) {
        ready[n] = 0
    }
    ready_count = 0;
    for (n : 0 .. CHANNELS - 1) {
        parked_for[n] = 0;
        state[n] = DORMANT
    }
    for (n : 0 .. CHANNELS - 1) {
        find_head(n);
        if
        :: head != NO_JOB && job[head].tries > 0 -> park(n); MET(replay_parked)
        :: head != NO_JOB && job[head].tries == 0 -> move(n, READY); MET(replay_ready)
        :: else
        fi
    }
}

// Rule 22: the notes of what was running survive the engine (noted), or not even they do.
inline crash(noted) {
    crashes_left--;
    front = (lease[0].token -> FIRST(lease[0].set) : NO_JOB);
    other = (lease[1].token -> FIRST(lease[1].set) : NO_JOB);
    replay();
    check_promises();
    if
    :: noted && front != NO_JOB -> count_noted(front)
    :: else
    fi;
    if
    :: noted && other != NO_JOB -> count_noted(other)
    :: else
    fi;
    order_channels()
}

inline count_noted(j) {
    if
    :: job[j].status == LIVE ->
        MET(noted);
        count_attempt(j);
        if
        :: PLANTED(REPLAY_TAIL) && job[j].status == LIVE -> job[j].late = 1
        :: else
        fi
    :: else -> MET(noted_ended)
    fi
}

inline due(c) {
    d_step {
        state[c] == PARKED && !PLANTED(NEVER_DUE) -> move(c, READY); MET(due); check()
    }
}

inline out_of_time(w) {
    d_step {
        lease[w].token && ROOM ->
        worker[w].lost = 1;
        end_failed(w, true);
        MET(out_of_time);
        check()
    }
}

proctype engine() {
end:
    do
    :: d_step { tail_count > 0 -> keep(); check() }
    :: d_step { PLANTED(SYNC_SHUFFLED) && tail_count == 2 -> swap_tail(); keep(); check() }
    :: d_step { crashes_left > 0 -> crash(true); check() }
    :: d_step { crashes_left > 0 -> crash(false); check() }
    :: due(0)
    :: due(1)
#if CHANNELS > 2
    :: due(2)
#endif
    :: out_of_time(0)
    :: out_of_time(1)
    od
}

// ---- Callers ----------------------------------------------------------------------------------

// Pushes its job, again if a crash lost it, and may cancel it.
proctype caller(byte j) {
end:
    do
    :: d_step {
        j != CHILD && job[j].status == NONE && IN_TURN(j) && ROOM ->
        write(LIVE, j, 0);
        deliver(j);
        check()
       }
    :: d_step { MAY_CANCEL(j) && job[j].status == LIVE && ROOM -> withdraw(j, CANCELLED); check() }
    :: d_step { MAY_EXPIRE(j) && job[j].status == LIVE && ROOM -> withdraw(j, EXPIRED); check() }
    od
}

// ---- Workers ----------------------------------------------------------------------------------

// Forgets its work. Its token can then be issued again.
inline forget(w) {
    for (i : 0 .. JOBS - 1) {
        if
        :: job[i].token == worker[w].token -> job[i].token = 0
        :: else
        fi;
        if
        :: kept[i].token == worker[w].token -> kept[i].token = 0
        :: else
        fi
    }
    for (i : 0 .. TAIL - 1) {
        if
        :: tail[i].token == worker[w].token -> tail[i].token = 0
        :: else
        fi
    }
    worker[w].phase = IDLE;
    worker[w].token = 0;
    worker[w].channel = 0;
    worker[w].set = 0;
    worker[w].lost = 0
}

inline go_on(w) {
    worker[w].set = worker[w].set & ~(1 << AWAITED(w));
    if
    :: worker[w].set == 0 -> forget(w)
    :: else -> worker[w].phase = RUN; MET(next_of_block)
    fi
}

inline start(w) {
    n = ready[0];
    find_head(n);
    move(n, IN_PROGRESS);
    worker[w].channel = n;
    worker[w].set = 1 << head;
    at = 1;
    for (i : 0 .. JOBS - 1) {
        if
        :: i > head && at < BLOCK(w) && CHANNEL(i) == n && job[i].status == LIVE ->
            worker[w].set = worker[w].set | (1 << i);
            at++;
            MET(block)
        :: else
        fi
    }
    fresh = 1;
    do
    :: LEASED_AS(fresh) || (HELD(fresh) && !PLANTED(TOKEN_AGAIN)) -> fresh++
    :: else -> break
    od;
    worker[w].token = fresh;
    worker[w].phase = RUN;
    lease[w].token = fresh;
    lease[w].channel = n;
    lease[w].set = worker[w].set;
    if
    :: PLANTED(DORMANT_EARLY) && at == 1 -> move(n, DORMANT)
    :: else
    fi
}

// Result, emitted job and end in one record, under the current token only.
inline commit(w, j) {
    MET(commit);
    assert(!worker[w].lost && CURRENT(w));
    end_job(j, DONE, worker[w].token);
    if
    :: j == PARENT -> deliver(CHILD); MET(emit)
    :: else
    fi;
    if
    :: j == PARENT && PLANTED(EMIT_APART) -> write(LIVE, CHILD, 0)
    :: else
    fi;
    worker[w].phase = SENT
}

// The token names the lease `holder`, and the job is the first unanswered there.
inline answer(w) {
    n = lease[holder].channel;
    lease[holder].set = lease[holder].set & ~(1 << front);
    if
    :: job[front].status == LIVE || PLANTED(COMMIT_ENDED) -> commit(w, front)
    :: else -> go_on(w); MET(refused)
    fi;
    if
    :: lease[holder].set == 0 -> forget_lease(holder); settle(n)
    :: else
    fi
}

inline done(w) {
    front = AWAITED(w);
    holder = (lease[0].token == worker[w].token -> 0 :
              (lease[1].token == worker[w].token -> 1 : 2));
    if
    :: PLANTED(NO_FENCE) && holder == 2 && LEASED(CHANNEL(front)) ->
        holder = (lease[0].token && lease[0].channel == CHANNEL(front) -> 0 : 1)
    :: else
    fi;
    if
    :: job[front].status == DONE && job[front].token == worker[w].token && !PLANTED(REPEAT_STALE) ->
        worker[w].phase = RESENT;
        MET(repeated)
    :: else ->
        if
        :: holder < 2 && HAS(lease[holder].set, front) -> answer(w)
        :: else ->
            MET(stale);
            assert(job[front].status != DONE || job[front].token != worker[w].token);
            forget(w)
        fi
    fi
}

#define REPLIED(w) (kept[AWAITED(w)].status == DONE && kept[AWAITED(w)].token == worker[w].token)

proctype pull(byte w) {
end:
    do
    :: d_step { worker[w].phase == IDLE && ready_count > 0 -> start(w); MET(start); check() }
    :: d_step {
        (worker[w].phase == RUN || worker[w].phase == UNSURE) && ROOM &&
        (!PLANTED(EMIT_APART) || tail_count == 0) ->
        done(w);
        check()
       }
    :: d_step {
        (worker[w].phase == SENT || worker[w].phase == RESENT) &&
        (REPLIED(w) || PLANTED(REPLY_EARLY)) ->
        go_on(w);
        MET(replied);
        check()
       }
    :: d_step {
        worker[w].phase == RUN && CURRENT(w) && ROOM -> end_failed(w, true); forget(w); check()
       }
    :: d_step { // RELEASE, the first time
        worker[w].phase == RUN && CURRENT(w) && releases_left > 0 ->
        releases_left--;
        n = lease[w].channel;
        forget_lease(w);
        settle(n);
        forget(w);
        MET(released);
        check()
       }
    :: d_step { // RELEASE, again and again
        worker[w].phase == RUN && CURRENT(w) && releases_left > 0 &&
        job[AWAITED(w)].status == LIVE ->
        releases_left--;
        n = lease[w].channel;
        forget_lease(w);
        park(n);
        forget(w);
        MET(released_parked);
        check()
       }
    :: d_step { // the connection is lost; the reply too, if one was to come
        ((worker[w].phase == RUN && CURRENT(w)) || worker[w].phase == SENT) && ROOM ->
        if
        :: worker[w].phase == SENT -> worker[w].phase = UNSURE; MET(reply_lost)
        :: else
        fi;
        worker[w].lost = 1;
        if
        :: lease[w].token -> end_failed(w, false); MET(connection_lost)
        :: else
        fi;
        check()
       }
    :: d_step { worker[w].lost -> forget(w); MET(worker_dead); check() }
    od
}

// ---- The whole --------------------------------------------------------------------------------

proctype finish() {
    timeout -> d_step {
        for (i : 0 .. JOBS - 1) {
            assert(job[i].status > LIVE || (i == CHILD && job[PARENT].status != DONE));
            assert(job[i].status == kept[i].status)
        }
        for (i : 0 .. CHANNELS - 1) {
            assert(state[i] == DORMANT)
        }
        MET(finish)
    }
}

init {
    d_step { c_code { now.planted = getenv("PLANT") ? atoi(getenv("PLANT")) : 0; } };
    atomic {
        if // the number of crashes is chosen first, so that the model can go on without one
        :: crashes_left = 0
        :: crashes_left = CRASHES
        fi;
        run engine();
        run caller(0);
        run caller(1);
#if JOBS > 3
        run caller(2);
#endif
        run pull(0);
        run pull(1);
        run finish()
    }
}
