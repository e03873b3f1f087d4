// The fields of every reply that is a map, and of INFO: a line for each, in the order of the wire.
//
// A list is expanded (X) wherever all fields are needed: the structs that hold them and the tables
// that write, read and document them (wire/replies.h), the syntax of commands, and the structs that
// the core answers queries with (core.h). A new field is a line here and the code that sets it.
//
// X(from, member, kind, name, about)
//     from    core: the struct of the core has a member of this name, and the server copies it
//             server: the command sets it
//     kind    bytes (mr_bytes), count (uint64_t), small (uint32_t), number (int64_t), rate (double,
//             per second), flag (bool, 0 or 1 on the wire), id (uint64_t, digits on the wire),
//             names (an array of texts), entry (uint64_t, where its bytes lie in the log; 0: nil),
//             other (written by a function, see wire/replies.h)
//     name    on the wire, in JSON and on the page; milliseconds end in -ms
//     about   what it means, in a line without a full stop
#ifndef BASE_REPLY_FIELDS_H
#define BASE_REPLY_FIELDS_H

#include "millrace.h"

#include <stdbool.h>
#include <stdint.h>

#define REPLY_TYPE_bytes mr_bytes
#define REPLY_TYPE_count uint64_t
#define REPLY_TYPE_small uint32_t
#define REPLY_TYPE_number int64_t
#define REPLY_TYPE_rate double
#define REPLY_TYPE_flag bool
#define REPLY_TYPE_id uint64_t
#define REPLY_TYPE_entry uint64_t

// X: the members of a struct of the core.
#define CORE_MEMBER(from, member, kind, ...) CORE_MEMBER_##from(member, kind)
#define CORE_MEMBER_core(member, kind) REPLY_TYPE_##kind member;
#define CORE_MEMBER_server(member, kind)

// X: initialises what the struct `*info` of the core has.
#define FROM_INFO(from, member, ...) FROM_INFO_##from(member)
#define FROM_INFO_core(member) .member = info->member,
#define FROM_INFO_server(member)

// X: the names, with a comma before each.
#define FIELD_LIST(from, member, kind, name, about) ", " name

// X: the names, with a space before each.
#define FIELD_NAMES(from, member, kind, name, about) " " name

// ---- The public infos -------------------------------------------------------------------------

// X(member): what an info of millrace.h has under the same name as the core's info and the reply of
// a server. MEMBER_FROM initialises it with that of `*from`, which is either.
#define STAGE_INFO_MEMBERS(X)                                                                      \
    X(waiting)                                                                                     \
    X(running) X(parked) X(delayed) X(dead) X(done) X(failed) X(oldest_ms) X(wasted_wait_ms)
#define EPIC_INFO_MEMBERS(X)                                                                       \
    X(resume)                                                                                      \
    X(accepted)                                                                                    \
    X(waiting)                                                                                     \
    X(running) X(done) X(dead) X(cancelled) X(expired) X(stopped) X(then_pushed) X(forget_ms)
#define JOB_INFO_MEMBERS(X)                                                                        \
    X(id) X(attempt) X(attempts) X(age_ms) X(left_ms) X(due_ms) X(running_ms)
#define SCHEDULE_INFO_MEMBERS(X)                                                                   \
    X(every_ms)                                                                                    \
    X(paused) X(next_at) X(last_at) X(pushed) X(last_id) X(deadline_ms) X(attempts) X(body_size)
#define MEMBER_FROM(member) .member = from->member,

// ---- Stages, channels, jobs -------------------------------------------------------------------

#define STAGE_FIELDS(X)                                                                            \
    X(core, name, bytes, "name", "its name")                                                       \
    X(core, waiting, count, "waiting", "jobs that can start, or follow others of their key")       \
    X(core, running, count, "running", "jobs that are leased")                                     \
    X(core, parked, count, "parked", "channels whose first job may not start yet, or halts them")  \
    X(core, delayed, count, "delayed", "jobs that are not due yet")                                \
    X(core, dead, count, "dead", "jobs that are dead")                                             \
    X(core, oldest_ms, number, "oldest-ms", "age of the oldest job that has not ended; -1: none")  \
    X(server, held_by, bytes, "held-by", "why no job starts, a word for each reason")              \
    X(server, workers, count, "workers", "connections that take its jobs")                         \
    X(core, pushed, count, "pushed", "jobs that were pushed")                                      \
    X(core, done, count, "done", "jobs that were committed")                                       \
    X(core, failed, count, "failed", "attempts that failed")                                       \
    X(core, expired, count, "expired", "jobs that were not done by their deadline")                \
    X(core, cancelled, count, "cancelled", "jobs that were cancelled")                             \
    X(core, in_per_s, rate, "in-per-s", "pushes per second, lately")                               \
    X(core, out_per_s, rate, "out-per-s", "ends per second, lately")                               \
    X(server, wait_p50_ms, count, "wait-p50-ms", "half of the starts waited no longer")            \
    X(server, wait_p99_ms, count, "wait-p99-ms", "99 of 100 starts waited no longer")              \
    X(core, wasted_wait_ms, count, "wasted-wait-ms",                                               \
      "time that cancelled and expired jobs waited in all, if they never started")                 \
    X(core, states, count, "states", "keys that have a state")                                     \
    X(server, run_p50_ms, count, "run-p50-ms", "half of the commits came no later after a start")  \
    X(server, run_p99_ms, count, "run-p99-ms", "99 of 100 came no later")                          \
    X(server, wait_count, count, "waits", "starts since the server began")                         \
    X(server, waited_ms, count, "waited-ms", "how long these waited in all")                       \
    X(server, run_count, count, "runs", "commits since the server began")                          \
    X(server, ran_ms, count, "ran-ms", "how long these ran in all")                                \
    X(server, level, count, "level",                                                               \
      "jobs that its workers run at once, as far as they report it")                               \
    X(core, paused, flag, "paused", "1 after PAUSE")                                               \
    X(core, draining, flag, "draining", "1 after DRAIN")                                           \
    X(server, feeds, names, "feeds", "array of the stages that its jobs emitted to")               \
    X(core, groups, count, "groups", "groups that have jobs, if its policy group is on")           \
    X(server, top_groups, other, "top-groups",                                                     \
      "array of maps: 5 of its groups with the most jobs, as CHANNELS with GROUPS lists them")

#define CHANNEL_FIELDS(X)                                                                          \
    X(core, key, bytes, "key", "its key")                                                          \
    X(server, state, bytes, "state", "dormant, ready, in-progress or parked")                      \
    X(core, depth, count, "depth", "jobs that have not ended")                                     \
    X(core, oldest_ms, number, "oldest-ms", "age of its first job; -1: none")                      \
    X(core, parked_ms, number, "parked-ms", "until it is ready again; -1: not by itself")          \
    X(core, halted, flag, "halted", "1 if a dead job halts it")                                    \
    X(core, has_state, flag, "has-state", "1 if it has a state")                                   \
    X(core, paused, flag, "paused", "1 if it is paused")

#define GROUP_FIELDS(X)                                                                            \
    X(core, group, bytes, "group", "its name: what its keys have before the first slash")          \
    X(core, depth, count, "depth", "jobs that wait or run")                                        \
    X(core, running, count, "running", "jobs that are leased")                                     \
    X(core, ready, count, "ready", "channels whose first job can start")                           \
    X(server, held_by, bytes, "held-by", "group-limit, group-rate, or empty: no limit holds it")

#define JOB_FIELDS(X)                                                                              \
    X(core, id, id, "id", "its id")                                                                \
    X(core, stage, bytes, "stage", "its stage")                                                    \
    X(core, key, bytes, "key", "its key; empty: none")                                             \
    X(server, status, bytes, "status",                                                             \
      "delayed, waiting, running, done, dead, expired or cancelled")                               \
    X(core, attempt, small, "attempt", "the latest attempt, from 1; 0: none yet")                  \
    X(core, attempts, small, "attempts", "how many it may have")                                   \
    X(core, age_ms, number, "age-ms", "since its push; since its end once it has ended")           \
    X(core, left_ms, number, "left-ms", "to its deadline; -1: it has none")                        \
    X(core, due_ms, number, "due-ms", "until it may start; -1: it may")                            \
    X(core, running_ms, number, "running-ms", "since its start; -1: it does not run")              \
    X(server, worker, count, "worker", "the id of the connection that has it, or 0")               \
    X(server, reasons, other, "reasons", "array of maps: why its latest attempts failed")          \
    X(server, progress, other, "progress",                                                         \
      "map: what PROGRESS has said of it, while it runs; left out if nothing")

// The one or the other, and only if it is asked for.
#define JOB_BODY_FIELDS(X)                                                                         \
    X(server, body, other, "body", "its body, with BODY; nil: it is not kept")                     \
    X(server, result, other, "result", "instead of the body, once it is done")                     \
    X(server, meta, other, "meta", "with BODY: what its push said with META, if anything")

#define PROGRESS_FIELDS(X)                                                                         \
    X(server, done, count, "done", "how much is done")                                             \
    X(server, total, count, "total", "of how much; 0: not known")                                  \
    X(server, text, bytes, "text", "what the worker says")

#define REASON_FIELDS(X)                                                                           \
    X(server, attempt, small, "attempt", "which attempt failed")                                   \
    X(server, age_ms, count, "age-ms", "since it failed")                                          \
    X(server, text, bytes, "text", "why")                                                          \
    X(server, output, bytes, "output", "the end of what the worker printed; empty: not kept")

// A job of TAKE is an array: its values have places, and no names.
#define GRANT_ID_FIELD(X) X(core, id, id, "id", "its id")
#define GRANT_OTHER_FIELDS(X)                                                                      \
    X(server, token, bytes, "token", "names the lease: for DONE, FAIL, RELEASE and BEAT")          \
    X(core, stage, bytes, "stage", "its stage")                                                    \
    X(core, key, bytes, "key", "its key; empty: none")                                             \
    X(server, body, entry, "body", "its body")                                                     \
    X(core, attempt, small, "attempt", "which attempt this is, from 1")                            \
    X(core, left_ms, number, "deadline-ms-left or -1", "to its deadline; -1: it has none")         \
    X(server, state, entry, "state or nil", "the state of its channel; nil: none")                 \
    X(core, lease_ms, number, "lease-ms", "how long the lease lasts without BEAT")                 \
    X(server, meta, bytes, "meta", "what the push said with META; empty: nothing")
#define GRANT_FIELDS(X) GRANT_ID_FIELD(X) GRANT_OTHER_FIELDS(X)

// ---- Epics, workers ---------------------------------------------------------------------------

#define EPIC_NAME_FIELD(X) X(server, name, bytes, "name", "its name")

#define EPIC_FIELDS(X)                                                                             \
    X(core, resume, count, "resume", "the first number that was not pushed")                       \
    X(server, total, number, "total", "the number of its last push; -1: not known yet")            \
    X(core, accepted, count, "accepted", "pushes that made a job")                                 \
    X(core, waiting, count, "waiting", "jobs that have not started")                               \
    X(core, running, count, "running", "jobs that are leased")                                     \
    X(core, done, count, "done", "jobs that were committed")                                       \
    X(core, dead, count, "dead", "jobs that are dead")                                             \
    X(core, cancelled, count, "cancelled", "jobs that were cancelled")                             \
    X(core, expired, count, "expired", "jobs that were not done by their deadline")                \
    X(core, stage, bytes, "stage", "its stage")                                                    \
    X(server, held_by, bytes, "held-by", "why none of its jobs starts")                            \
    X(server, expected, number, "expected", "pushes that its producer expects; -1: not known")     \
    X(core, then, bytes, "then", "the stage that its THEN will push to; empty: none waits")        \
    X(core, then_pushed, flag, "then-pushed", "whether its THEN was pushed")                       \
    X(core, stopped, flag, "stopped", "whether it was cancelled: no more jobs come")               \
    X(core, forget_ms, count, "forget-ms", "how long after its end it is dropped; 0: it is kept")

// ---- Schedules ----------------------------------------------------------------------------------

#define SCHEDULE_FIELDS(X)                                                                         \
    X(core, name, bytes, "name", "its name")                                                       \
    X(core, stage, bytes, "stage", "the stage that it pushes to")                                  \
    X(core, cron, bytes, "cron", "its cron expression; empty: every-ms says when")                 \
    X(core, every_ms, count, "every-ms", "its interval; 0: cron says when")                        \
    X(core, zone, bytes, "tz", "the time zone of cron")                                            \
    X(server, missed, bytes, "missed", "what happens to missed ticks: skip, one or all")           \
    X(core, paused, flag, "paused", "1 after PAUSE")                                               \
    X(core, next_at, number, "next-at", "its next tick, Unix time in ms; -1: none while paused")   \
    X(core, last_at, number, "last-at", "its last tick, Unix time in ms; -1: none yet")            \
    X(core, pushed, count, "pushed", "jobs that it has pushed")                                    \
    X(core, last_id, id, "last-id", "the latest of these; 0: none yet")                            \
    X(core, key, bytes, "key", "of its jobs; empty: none")                                         \
    X(core, deadline_ms, count, "deadline-ms", "of its jobs, from their push; 0: none")            \
    X(core, attempts, small, "attempts", "of its jobs; 0: as the stage says")                      \
    X(core, body_size, count, "body-size", "bytes of the body of its jobs")                        \
    X(server, upcoming, other, "upcoming", "array of its next five ticks, Unix time in ms")

// Only of SCHEDULE.
#define SCHEDULE_MORE_FIELDS(X)                                                                    \
    X(server, body, other, "body", "with BODY: the body of its jobs; nil: it cannot be read")      \
    X(server, meta, other, "meta", "with BODY: what it says with META, if anything")

#define WORKER_FIELDS(X)                                                                           \
    X(server, id, count, "id", "the id of the connection")                                         \
    X(server, name, bytes, "name", "as it calls itself")                                           \
    X(server, address, bytes, "address", "where it comes from")                                    \
    X(server, stages, bytes, "stages", "the stages that it takes from, with spaces between them")  \
    X(server, waits, flag, "waits", "1 while it waits for jobs")                                   \
    X(server, leases, count, "leases", "leases that it holds")                                     \
    X(server, taken, count, "taken", "jobs that it has taken")                                     \
    X(server, ended, count, "ended", "jobs that it has ended")                                     \
    X(server, age_ms, count, "age-ms", "since it connected")                                       \
    X(server, level, count, "level", "jobs that it runs at once; 0: it does not report it")

// ---- The cluster ------------------------------------------------------------------------------

#define NODE_FIELDS(X)                                                                             \
    X(server, id, bytes, "id", "40 hexadecimal digits, made from its address")                     \
    X(server, address, bytes, "address", "where clients and other nodes reach it")                 \
    X(server, http, bytes, "http", "where its page is; empty: it has none")                        \
    X(server, version, bytes, "version", "the version of Millrace that it runs")                   \
    X(server, state, bytes, "state",                                                               \
      "serves, drains (its shards go to other nodes) or lost (it has not written for "             \
      "--takeover)")                                                                               \
    X(server, shards, count, "shards", "shards that it owns")                                      \
    X(server, age_ms, count, "age-ms", "since it has last written to the store")                   \
    X(server, here, flag, "here", "1 for the node that answers")

#define SHARD_FIELDS(X)                                                                            \
    X(server, shard, count, "shard", "its number, from 0")                                         \
    X(server, first_slot, count, "first-slot", "the first slot of its stages: see KEYSLOT …")      \
    X(server, last_slot, count, "last-slot", "… and the last one")                                 \
    X(server, owner, bytes, "owner", "the address of the node that owns it; empty: none does")     \
    X(server, state, bytes, "state",                                                               \
      "serves, opening (its log is read), leaving (to another node), unlinked (the node that "     \
      "answers has no connection to its owner) or unowned")                                        \
    X(server, epoch, count, "epoch", "how many times nodes have claimed it")                       \
    X(server, log_bytes, count, "log-bytes", "size of its log in the store, about")                \
    X(server, age_ms, count, "age-ms", "since the owner has last written to the store")            \
    X(server, moved_to, bytes, "moved-to", "the node that MOVE has named; empty: any")

#define CLUSTER_FIELDS(X)                                                                          \
    X(server, cluster, bytes, "cluster", "its name")                                               \
    X(server, state, bytes, "state", "ok, or fail if a shard has no owner")                        \
    X(server, nodes, other, "nodes", "array of maps")                                              \
    X(server, shards, other, "shards", "array of maps")

// ---- The server -------------------------------------------------------------------------------

#define HELLO_FIELDS(X)                                                                            \
    X(server, server, bytes, "server", "millrace")                                                 \
    X(server, version, bytes, "version", "the version of Redis whose clients it serves")           \
    X(server, proto, number, "proto", "2 or 3")                                                    \
    X(server, id, count, "id", "the id of this connection")                                        \
    X(server, mode, bytes, "mode", "standalone, or cluster if it is a node of one")                \
    X(server, role, bytes, "role", "master")                                                       \
    X(server, modules, names, "modules", "none")                                                   \
    X(server, owned_ms, count, "owned-ms",                                                         \
      "of a node: a worker stops if this long after it was sent no BEAT was answered; 0: of none")

// What COMMAND DOCS says of a command, and of its arguments, which are one: the syntax.
#define DOCS_FIELDS(X)                                                                             \
    X(server, summary, bytes, "summary", "what it does")                                           \
    X(server, group, bytes, "group", "millrace")                                                   \
    X(server, syntax, bytes, "syntax", "what stands behind its name")                              \
    X(server, reply, bytes, "reply", "what it answers")                                            \
    X(server, role, bytes, "role", "the role that a token needs")                                  \
    X(server, arguments, other, "arguments", "array of maps: its arguments")

#define ARGUMENT_FIELDS(X)                                                                         \
    X(server, name, bytes, "name", "its name")                                                     \
    X(server, type, bytes, "type", "string")

// The lines of INFO. X(section, seen, loops, member, kind, name, about)
//     seen    all: by every token; whole: by those that may see all stages
//     loops   what a server of several loops says: their sum, or what the first of them says
#define INFO_FIELDS(X)                                                                             \
    X(SERVER, all, first, redis_version, bytes, "redis_version", "of Redis, for its clients")      \
    X(SERVER, all, first, redis_mode, bytes, "redis_mode",                                         \
      "standalone, or cluster if it is a node")                                                    \
    X(SERVER, all, first, millrace_version, bytes, "millrace_version", "its version")              \
    X(SERVER, all, first, uptime_s, count, "uptime_in_seconds", "since the store was read")        \
    X(SERVER, whole, first, store, bytes, "store", "where it is")                                  \
    X(SERVER, all, first, shards, count, "shards", "of the store")                                 \
    X(SERVER, all, first, port, count, "tcp_port", "at which clients connect; 0: at none")         \
    X(SERVER, whole, first, unix_path, bytes, "unix_socket",                                       \
      "path of the Unix-domain socket; empty: there is none")                                      \
    X(CLIENTS, whole, sum, clients, count, "connected_clients", "connections now")                 \
    X(CLIENTS, whole, sum, blocked, count, "blocked_clients", "those whose command waits")         \
    X(CLIENTS, whole, sum, workers, count, "workers", "those that take jobs")                      \
    X(MEMORY, whole, sum, memory, count, "used_memory", "bytes that max-bytes counts")             \
    X(MEMORY, whole, first, max_memory, count, "maxmemory", "max-bytes; 0: there is no limit")     \
    X(MEMORY, whole, sum, index_bytes, count, "index_bytes", "bytes of the index of jobs")         \
    X(MEMORY, whole, sum, buffer_bytes, count, "buffer_bytes", "bytes of requests and replies")    \
    X(MEMORY, whole, first, max_buffers, count, "maxbuffers", "most bytes of these")               \
    X(MEMORY, whole, sum, refused_full, count, "refused_full",                                     \
      "pushes and requests that were refused for lack of room")                                    \
    X(PERSISTENCE, all, sum, loading, count, "loading", "0 once the store has been read")          \
    X(PERSISTENCE, whole, sum, log_bytes, count, "log_bytes", "bytes of the log")                  \
    X(PERSISTENCE, whole, sum, live_bytes, count, "live_bytes", "bytes of it that are needed")     \
    X(PERSISTENCE, all, sum, log_full, count, "log_full", "0 unless the disk is full")             \
    X(PERSISTENCE, all, first, log_stopped, bytes, "log_stopped", "why the log failed, or empty")  \
    X(STATS, whole, sum, connections, count, "total_connections_received", "connections so far")   \
    X(STATS, whole, sum, commands, count, "total_commands_processed", "commands so far")           \
    X(STATS, whole, sum, rejections, count, "rejected_connections",                                \
      "connections that were refused at a limit")                                                  \
    X(STATS, whole, sum, refused_secrets, count, "refused_secrets", "wrong secrets")               \
    X(STATS, all, sum, waiting, count, "waiting", "jobs of all stages, as in STAGES")              \
    X(STATS, all, sum, running, count, "running", "likewise")                                      \
    X(STATS, all, sum, delayed, count, "delayed", "likewise")                                      \
    X(STATS, all, sum, dead, count, "dead", "likewise")                                            \
    X(STATS, all, sum, pushed, count, "pushed", "likewise")                                        \
    X(STATS, all, sum, done, count, "done", "likewise")                                            \
    X(STATS, all, sum, failed, count, "failed", "likewise")                                        \
    X(QUOTAS, all, first, token, bytes, "token", "the name of the client's token, or empty")       \
    X(QUOTAS, all, first, used_stages, count, "used_stages", "stages that it has made")            \
    X(QUOTAS, all, first, max_stages, count, "max_stages", "its quota of these; 0: none")          \
    X(QUOTAS, all, first, used_jobs, count, "used_jobs", "jobs that count for it")                 \
    X(QUOTAS, all, first, max_jobs, count, "max_jobs", "its quota of these; 0: none")              \
    X(QUOTAS, all, first, used_bytes, count, "used_bytes", "bytes of these jobs")                  \
    X(QUOTAS, all, first, max_bytes, count, "max_bytes", "its quota of these; 0: none")            \
    X(QUOTAS, all, first, used_sources, count, "used_sources", "sources that it uses")             \
    X(QUOTAS, all, first, max_sources, count, "max_sources", "its quota of these; 0: none")        \
    X(QUOTAS, all, first, used_epics, count, "used_epics", "epics that it has made")               \
    X(QUOTAS, all, first, max_epics, count, "max_epics", "its quota of these; 0: none")            \
    X(QUOTAS, all, first, used_schedules, count, "used_schedules", "schedules that it has made")   \
    X(QUOTAS, all, first, max_schedules, count, "max_schedules", "its quota of these; 0: none")    \
    X(QUOTAS, all, first, used_connections, count, "used_connections", "its open connections")     \
    X(QUOTAS, all, first, max_connections, count, "max_connections",                               \
      "its quota of these; 0: none")                                                               \
    X(REPLICATION, all, first, role, bytes, "role", "master")                                      \
    X(REPLICATION, all, first, slaves, count, "connected_slaves", "0")                             \
    X(CLUSTER, all, first, cluster_enabled, count, "cluster_enabled", "1 if it is a node")         \
    X(CLUSTER, all, first, cluster, bytes, "cluster", "its name; empty: the server is no node")    \
    X(CLUSTER, all, first, nodes, count, "nodes", "nodes of the cluster that are alive")           \
    X(CLUSTER, all, first, shards_here, count, "shards_here", "shards that this node owns")        \
    X(CLUSTER, all, first, shards_unowned, count, "shards_unowned", "shards without an owner")     \
    X(CLUSTER, whole, first, node, bytes, "node", "where clients and other nodes reach this one")  \
    X(CLUSTER, whole, first, owner, bytes, "owner",                                                \
      "the address of the node that owns shard 0, whichever node is asked")                        \
    X(CLUSTER, all, first, epoch, count, "epoch",                                                  \
      "the highest epoch of a shard: it grows with each change of its owner")                      \
    X(CLUSTER, all, first, replicated, count, "replicated",                                        \
      "1 if an acknowledged job is on the disks of two machines")                                  \
    X(CLUSTER, all, first, promise, bytes, "promise",                                              \
      "what an acknowledged job survives, as the store was set up when the node began to serve")   \
    X(CLUSTER, all, first, outage_ms, count, "outage_ms",                                          \
      "for how long the store has not answered; 0: it answers")                                    \
    X(CLUSTER, whole, first, outage, bytes, "outage", "why it does not, or empty")

#endif
