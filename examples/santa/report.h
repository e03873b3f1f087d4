// Report: what became of the ways, as a table and as a summary that was checked.
#ifndef SANTA_REPORT_H
#define SANTA_REPORT_H

#include "mailbox.h"

#include <stdbool.h>

enum { WAYS = 3 };

void report_table(const struct way ways[WAYS], const struct calendar *);

// Checks what must hold on any machine, however busy: every letter was answered once and rightly,
// none of a street overlapped or overtook another. Times are printed, not checked: what else the
// machine does while one way runs and another does not would decide.
bool report_holds(const struct way ways[WAYS], const struct calendar *);

#endif
