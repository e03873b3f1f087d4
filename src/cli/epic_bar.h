// A bar that tells how an epic gets on, for commands that wait for it:
//
//     june [######..............] read 5000  waiting 800  running 8  done 4190  dead 2  45.2/s
//     2m03s left
//
// It looks at the epic over a connection of its own: once a second where the bar is drawn, else
// only when nothing has moved for a while, to tell once what the epic waits for ("no worker takes
// from stage mail").
#ifndef CLI_EPIC_BAR_H
#define CLI_EPIC_BAR_H

#include "cli/talk.h"

enum { EPIC_HELD = 300 };

struct epic_bar {
    struct talks *talks;
    const char *command, *stage, *epic;
    struct talk *talk; // NULL: it was not needed yet
    double share;      // of the input that was read; below 0: that is not known
    uint64_t read;     // lines; 0: somebody else reads
    uint64_t begun_ms, asked_ms;
    uint64_t ended_before; // when it was looked at first
    bool rich, asked, looked, shown;
    char held[EPIC_HELD]; // what was told last, where nothing is drawn
};

// Borrows all of it until epic_bar_clear.
void epic_bar_init(struct epic_bar *, struct talks *, const char *command, const char *stage,
                   const char *epic);

// How long a turn may wait before epic_bar_turn is to be called again.
int64_t epic_bar_wait_ms(const struct epic_bar *);

// After a turn; `came`: something else has moved. Looks, draws, tells.
enum cli_exit epic_bar_turn(struct epic_bar *, bool came);

void epic_bar_clear(struct epic_bar *); // off the terminal

// What the jobs of an epic wait for, in words; "" if for nothing. `out` has EPIC_HELD bytes and is
// returned.
const char *epic_held(char *out, const struct response_value *epic);

#endif
