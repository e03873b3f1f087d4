// Mend: makes sense of the records that are left when parts of a log were given up.
#ifndef CLI_MEND_H
#define CLI_MEND_H

#include <stdbool.h>
#include <stdint.h>

struct mended {
    uint64_t stages; // got a name, because theirs was lost
    bool head;       // the log begins later than it knew
};

// Appends to the store in `dir` what its records are missing. `lost`: parts of it were given up,
// and ids that are in use may have been in them. Errors are the log's.
int records_mend(const char *dir, bool lost, struct mended *out);

#endif
