// Any text as a file of tokens: entries keep the rules of names, roles and patterns, and a copy is
// equal.
#include "base/bytes.h"
#include "base/errors.h"
#include "input.h"
#include "server/auth.h"

static void check_entry(const struct auth *copy, const struct auth_entry *e) {
    assert(auth_check_name(e->name) == 0 && auth_check_patterns(e->patterns) == 0);
    assert(e->roles && e->maker);
    assert(auth_same(copy, e));
    assert(auth_of_maker(copy, e->maker));
    assert(!e->all || auth_sees(e, mr_str("any.stage")));
    (void)auth_sees(e, e->patterns);
    assert(!auth_find(copy, e->name, mr_str("no such secret")));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct auth *list, *copy;
    if (auth_parse(bytes_of(data, size), &list) < 0) {
        assert(*error_text());
        return 0;
    }
    int err = auth_copy(list, &copy);
    assert(err == 0 && auth_count(copy) == auth_count(list));
    for (size_t i = 0; i < auth_count(list); i++)
        check_entry(copy, auth_at(list, i));
    auth_destroy(copy);
    auth_destroy(list);
    return 0;
}
