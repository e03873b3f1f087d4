// Replaces this folder in a build without HTTP.
#include "web/web.h"

const struct front_impl *web_front(void) {
    return NULL;
}
