// See quotas.h.
#include "base/quotas.h"

static const struct {
    const char *word, *about;
} texts[QUOTA_KINDS] = {
#define TEXTS(kind, word, about) [QUOTA_##kind] = { word, about },
    QUOTAS(TEXTS)
#undef TEXTS
};

const char *quota_word(enum quota_kind kind) {
    return texts[kind].word;
}

const char *quota_about(enum quota_kind kind) {
    return texts[kind].about;
}
