// See quotas.h.
#include "base/quotas.h"

static const char *const words[QUOTA_KINDS] = {
#define WORD(kind, word) [QUOTA_##kind] = word,
    QUOTAS(WORD)
#undef WORD
};

const char *quota_word(enum quota_kind kind) {
    return words[kind];
}
