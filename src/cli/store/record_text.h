// Record text: one entry of a store on one line, as words or as a JSON object. Which fields a
// record has and what they are called is read from the table of core/record.h: a new kind or field
// is shown without a change here.
#ifndef CLI_STORE_RECORD_TEXT_H
#define CLI_STORE_RECORD_TEXT_H

#include "core/record.h"

// An entry to be printed. Everything is borrowed.
struct dump_entry {
    uint32_t shard, shards; // of how many; if there is one it is not printed
    uint64_t at;
    const struct record *record;
    mr_bytes stage; // name of the record's stage; empty: not known, or none
    uint32_t body_size;
    bool with_body; // `body` was read, and is to be printed
    mr_bytes body;  // always read for a FAIL: the reasons
};

void record_print(const struct dump_entry *);
void record_json(const struct dump_entry *);

#endif
