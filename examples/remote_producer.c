// A producer with Millrace's own library: remote_producer [millrace://HOST:PORT [NAME]]. The
// library numbers its pushes: a push that it repeats on a new connection is the same job, also
// without `once`.
#include <millrace.h>
#include <stdio.h>

int main(int argc, char **argv) {
    const char *url = argc > 1 ? argv[1] : "millrace://127.0.0.1";
    const char *name = argc > 2 ? argv[2] : "world";
    mr_push_options options = { .key = mr_str(name) };
    mr *engine = NULL;
    mr_id id;
    mr_result answer = { 0 };
    if (mr_open(url, NULL, &engine) < 0 ||
        mr_push(engine, "greetings", mr_str(name), &options, &id) < 0 ||
        mr_await(engine, id, 20000, &answer) < 0)
        return fprintf(stderr, "%s\n", mr_error()), 1;
    printf("%.*s\n", (int)answer.body.size, (const char *)answer.body.data);
    mr_result_free(&answer);
    return mr_close(engine) < 0;
}
