// Backup: a client copies all shards as they were at one instant, while the server goes on
// (millrace store copy millrace://…). Each loop notes for its shards where the log ends at that
// instant, and does not shorten these logs until the backup ends; the client reads up to there.
//
//     BACKUP BEGIN ─► number + 1 ─► each loop, before its next message: notes the ends, pins
//                                          └─► the last one lets the client have its reply
//
// The ends are of one instant although loops do not stop: a loop that has noted them may send
// a message to one that has not, but that one looks at the number before it handles the message. So
// no log has the arrival of an emit whose commit is behind the end of another log; and an emit that
// was under way is still in the outbox of its shard, as after a crash.
//
// One backup at a time. It ends with its connection.
#ifndef SERVER_BACKUP_H
#define SERVER_BACKUP_H

#include "core/route.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct host;
struct loop_message;
struct session;

// What a backup reads of a shard.
struct backup_part {
    uint64_t head, end; // positions
    uint64_t segment_size;
};

// What the loops of a server share.
struct backup {
    _Atomic uint64_t number;    // of beginnings and ends so far; odd: one is under way
    pthread_mutex_t lock;       // guards what follows
    struct session *session;    // that has begun it; for its loop only; NULL: it has gone
    uint64_t connection;        // the id of that session
    uint32_t loop;              // which it is of
    uint32_t missing;           // loops that have not noted their shards yet
    struct loop_message *noted; // sent by the last of them; NULL: with one loop, and afterwards
    struct backup_part parts[SHARDS_MOST];
};

void backup_init(struct backup *);
void backup_finish(struct backup *);

// Begins one for the connection of the session. 1: all shards are noted; 0: the session has to
// wait, and is woken. MR_EBUSY: there is one; MR_EINVAL: the shards are on several nodes;
// MR_ENOMEM.
int backup_begin(struct session *);

// Ends that of the session; no-op if it has none.
void backup_end(struct session *);

// Before a loop handles a message: notes its shards if a backup has begun, lets go of them if it is
// over. The second one when that is so.
void backup_catch_up(struct host *);

// What the connection of the session reads of a shard. False: it has begun no backup.
bool backup_part_of(const struct session *, uint32_t shard, struct backup_part *out);

#endif
