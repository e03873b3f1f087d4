// Top: shows the stages of an engine on the whole terminal, once a second.
//
//     INFO, STAGES, JOBS, CHANNELS, WORKERS, WHY ─► struct top: the latest replies ─► top_draw ─►
//     screen keys ─► what is chosen, opened, paused ───────────┘
//
// Drawing uses nothing but struct top.
#ifndef CLI_TOP_TOP_H
#define CLI_TOP_TOP_H

#include "cli/top/screen.h"

#include <stdint.h>

enum {
    TOP_CHANNELS = 8,
    TOP_WORKERS = 8,
    TOP_JOBS = 5,
    TOP_JOBS_LOOKED = 100, // running jobs, of which those with a progress are shown
    TOP_PAST = 60,         // looks that are remembered
    TOP_NAME = 204,
    TOP_HELD = 232,
    TOP_TEXT = 512,
};

struct top_stage {
    char name[TOP_NAME], held[TOP_HELD];
    int64_t waiting, running, parked, delayed, dead, oldest_ms, workers;
    int64_t done, failed, wait_p50_ms, wait_p99_ms;
    double in_per_s, out_per_s;
    double rates[TOP_PAST], depths[TOP_PAST]; // the latest last
    uint32_t past;
    bool there; // in the latest reply
};

struct top_channel {
    char key[TOP_HELD], state[16];
    int64_t depth, oldest_ms, parked_ms;
};

struct top_worker {
    char name[TOP_NAME], address[64];
    int64_t leases, taken, ended, age_ms;
};

// A running job that has said how far it is.
struct top_job {
    char key[TOP_HELD], progress[TOP_TEXT]; // its id, if it has no key
    int64_t running_ms;
    double share; // that is done; below 0: not known
};

enum top_order { BY_NAME, BY_WAITING, BY_RATE, BY_AGE, BY_DEAD, TOP_ORDERS };

struct top {
    const char *where;      // the engine
    char cluster[TOP_TEXT]; // its nodes and shards, in words; "": the server is no node
    uint64_t outage_ms;     // how long the store of the cluster has not answered; 0: it does
    struct top_stage *stages;
    uint32_t stage_count, room;
    double rates[TOP_PAST], depths[TOP_PAST]; // of all stages
    uint32_t past;
    enum top_order order;
    char chosen[TOP_NAME]; // "": the first
    bool opened;           // the chosen stage is shown alone
    char why[TOP_TEXT];    // what that waits for
    struct top_channel channels[TOP_CHANNELS];
    struct top_worker workers[TOP_WORKERS];
    struct top_job jobs[TOP_JOBS];
    uint32_t channel_count, worker_count, worker_all, job_count;
    char message[TOP_TEXT]; // the result of the last key
    char trouble[TOP_TEXT]; // why what is shown is old; "": it is not
    uint32_t first;         // line of the list at its top
};

// The stage that is chosen, or NULL if there is none. `out_place` (may be NULL) gets its place in
// the list.
struct top_stage *top_chosen(const struct top *, uint32_t *out_place);

struct top_stage *top_named(const struct top *, const char *name); // or NULL

// Reads a reply that is an array of maps. MR_ENOMEM.
struct response_value;
int stages_read(struct top *, const struct response_value *);
void channels_read(struct top *, const struct response_value *);    // of the chosen stage, as …
void workers_read(struct top *, const struct response_value *);     // … its workers …
void top_jobs_read(struct top *, const struct response_value *);    // … and its running jobs
void top_cluster_read(struct top *, const struct response_value *); // of INFO

void top_draw(struct top *, struct screen *);

#endif
