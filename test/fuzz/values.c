// Any text as a value: durations and sizes of the command line, policies of a stage, quotas of a
// token. What is accepted is within its bounds, and a policy reads what it prints.
#include "cli/values.h"
#include "base/bytes.h"
#include "base/limits.h"
#include "core/policy.h"
#include "input.h"
#include "server/auth.h"

static void check_policies(mr_bytes value) {
    struct policy policy = policy_default(), again = policy_default();
    const char *name;
    char text[POLICY_TEXT];
    for (size_t i = 0; (name = policy_get(&policy, i, text, sizeof text)) != NULL; i++)
        (void)policy_set(&policy, mr_str(name), value);
    assert(policy_is_possible(&policy));
    for (size_t i = 0; (name = policy_get(&policy, i, text, sizeof text)) != NULL; i++) {
        int err = policy_set(&again, mr_str(name), mr_str(text));
        assert(err == 0);
    }
    assert(policy_equal(&policy, &again));
}

static void check_quota(mr_bytes word) {
    struct quotas quotas = { 0 };
    if (auth_parse_quota(word, &quotas) < 0)
        return;
    for (int i = 0; i < QUOTA_KINDS; i++)
        assert(quotas.of[i] <= AUTH_QUOTA_MOST);
    int err = auth_parse_quota(word, &quotas);
    assert(err < 0); // twice is refused
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = input_string(data, size);
    int64_t ms;
    uint64_t bytes;
    if (duration_read(text, &ms) == 0)
        assert(ms >= 1 && ms <= TIME_MOST_MS);
    if (size_read(text, BODY_MOST, &bytes) == 0)
        assert(bytes >= 1 && bytes <= BODY_MOST);
    check_policies(bytes_of(data, size));
    check_quota(bytes_of(data, size));
    free(text);
    return 0;
}
