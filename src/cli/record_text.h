// Record text: one entry of a store in words, or as a JSON object, on one line.
#ifndef CLI_RECORD_TEXT_H
#define CLI_RECORD_TEXT_H

#include "core/record.h"

// An entry to be shown. Everything is borrowed.
struct shown {
    uint32_t shard, shards; // of how many; one is not told of
    uint64_t at;
    const struct record *record;
    mr_bytes stage; // name of the record's stage; empty: not known, or none
    uint32_t body_size;
    bool with_body; // `body` was read, and is to be shown
    mr_bytes body;  // always read for a FAIL: the reasons
};

void record_print(const struct shown *);
void record_json(const struct shown *);

#endif
