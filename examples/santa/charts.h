// Charts: queue length over time, and time in the system split into waiting and running; for each
// way on the same scales, so that they can be compared.
#ifndef SANTA_CHARTS_H
#define SANTA_CHARTS_H

#include "report.h"

// In plain characters, the ways side by side, 80 columns at most.
void charts_print(const struct way ways[WAYS], const struct calendar *);

// As DIR/NAME.svg for each way and DIR/ways.svg for all; makes DIR. 0, or -1 with errno.
int charts_write(const struct way ways[WAYS], const struct calendar *, const char *dir);

#endif
