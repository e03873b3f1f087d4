// Patience: those who keep us waiting, in the order since when. All have equally long, so whose
// time is up first always stands first, and nothing has to be looked through.
//
// Time is an argument. One thread.
#ifndef SERVER_PATIENCE_H
#define SERVER_PATIENCE_H

#include "base/list.h"

#include <stdint.h>

struct waited {
    struct list of_patience; // in none: nobody waits for it
    uint64_t since_ms;
};

struct patience {
    struct list waited;
    uint64_t ms; // how long; 0: for ever, and nobody is noted
};

void patience_begin(struct patience *, struct waited *, uint64_t now_ms); // or begins anew
void patience_end(struct waited *);                                       // also of one not noted

// The next whose time is up, who is not waited for any more; NULL: none.
struct waited *patience_over(struct patience *, uint64_t now_ms);

uint64_t patience_next_ms(const struct patience *); // when to ask again; UINT64_MAX: not at all

#endif
