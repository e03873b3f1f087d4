// The parts of a line: its key by field, regular expression and JSON; its places in a command. And
// durations, as the command line has them; signals that come in pairs; when a command may start.
#include "base/bytes.h"
#include "base/errors.h"
#include "cli/interrupts.h"
#include "cli/keys.h"
#include "cli/placeholders.h"
#include "cli/run/gate.h"
#include "cli/values.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

// ---- Keys -------------------------------------------------------------------------------------

static void expect_key(const struct keys *keys, mr_bytes line, const char *expected) {
    struct buffer key = { 0 };
    assert_int_equal(keys_find(keys, line, &key), 0);
    assert_true(bytes_equal(buffer_bytes(&key), mr_str(expected)));
    buffer_finish(&key);
}

static void key_is_a_field(void **state) {
    (void)state;
    struct keys keys;
    assert_int_equal(keys_open("2", NULL, NULL, &keys), 0);
    expect_key(&keys, mr_str("one two three"), "two");
    expect_key(&keys, mr_str("  one \t two"), "two");
    expect_key(&keys, mr_str("one  "), "");
    expect_key(&keys, mr_str(""), "");
    expect_key(&keys, (mr_bytes){ 0 }, "");
    keys_close(&keys);
}

static void key_is_what_a_regex_finds(void **state) {
    (void)state;
    struct keys keys;
    assert_int_equal(keys_open(NULL, "/([^/]+)/", NULL, &keys), 0);
    expect_key(&keys, mr_str("./photos/a.png"), "photos"); // the group
    expect_key(&keys, mr_str("a.png"), "");
    keys_close(&keys);
    assert_int_equal(keys_open(NULL, "[0-9]+", NULL, &keys), 0);
    expect_key(&keys, mr_str("order 17, item 3"), "17"); // all of it
    expect_key(&keys, bytes_of("a\0b7", 4), "7");        // behind a 0 byte
    expect_key(&keys, (mr_bytes){ 0 }, "");
    keys_close(&keys);
    assert_int_equal(keys_open(NULL, "a(b)?", NULL, &keys), 0);
    expect_key(&keys, mr_str("ac"), ""); // the group has no part in it
    keys_close(&keys);
}

static void key_is_a_member_of_json(void **state) {
    (void)state;
    struct keys keys;
    assert_int_equal(keys_open(NULL, NULL, "user", &keys), 0);
    expect_key(&keys, mr_str("{\"id\": 1, \"user\": \"ann\"}"), "ann");
    expect_key(&keys, mr_str("{\"user\": 17}"), "17");
    expect_key(&keys, mr_str("{\"user\": 1.5}"), "1.5");
    expect_key(&keys, mr_str("{\"user\": true}"), "true");
    expect_key(&keys, mr_str("{\"user\": null}"), "");
    expect_key(&keys, mr_str("{\"user\": [\"ann\"]}"), "");
    expect_key(&keys, mr_str("{\"user\": \"\\u00e9\"}"), "é");
    expect_key(&keys, mr_str("{\"other\": 1}"), "");
    expect_key(&keys, mr_str("[1]"), "");
    expect_key(&keys, mr_str("{\"user\": \"ann\""), "");
    expect_key(&keys, (mr_bytes){ 0 }, "");
    keys_close(&keys);
}

static void keys_that_cannot_be(void **state) {
    (void)state;
    struct keys keys;
    assert_int_equal(keys_open("0", NULL, NULL, &keys), MR_EINVAL);
    assert_int_equal(keys_open("-1", NULL, NULL, &keys), MR_EINVAL);
    assert_int_equal(keys_open("2x", NULL, NULL, &keys), MR_EINVAL);
    assert_int_equal(keys_open("", NULL, NULL, &keys), MR_EINVAL);
    assert_int_equal(keys_open("99999999999999999999999", NULL, NULL, &keys), MR_EINVAL);
    assert_int_equal(keys_open(NULL, "(", NULL, &keys), MR_EINVAL);
    assert_non_null(strstr(error_text(), "--key-regex '('"));
    assert_int_equal(keys_open("1", "x", NULL, &keys), MR_EINVAL);
    assert_int_equal(keys_open(NULL, "x", "y", &keys), MR_EINVAL);
    assert_int_equal(keys_open(NULL, NULL, NULL, &keys), 0);
    expect_key(&keys, mr_str("anything"), "");
}

static void long_keys_have_channels_of_their_own(void **state) {
    (void)state;
    static char a[5000], b[5000];
    uint8_t room_a[KEY_MOST], room_b[KEY_MOST];
    memset(a, 'x', sizeof a);
    memset(b, 'x', sizeof b);
    b[4999] = 'y';
    mr_bytes channel = key_channel(bytes_of(a, sizeof a), room_a);
    assert_int_equal(channel.size, KEY_MOST);
    assert_true(bytes_equal(channel, key_channel(bytes_of(a, sizeof a), room_b)));
    assert_false(bytes_equal(channel, key_channel(bytes_of(b, sizeof b), room_b)));
    assert_true(bytes_equal(bytes_of(a, KEY_MOST), key_channel(bytes_of(a, KEY_MOST), room_b)));
}

// ---- Placeholders -----------------------------------------------------------------------------

static const char *fill(const char *word, mr_bytes line) {
    static char filled_word[256];
    const char *const words[] = { "command", word, NULL };
    struct template t;
    assert_int_equal(template_open(words, true, &t), 0);
    struct parts parts = { .line = line, .key = mr_str("the key"), .number = 17 };
    struct filled room = { 0 };
    assert_int_equal(template_fill(&t, &parts, NULL, &room), 0);
    const char *const *argv = room.argv;
    assert_null(room.variables[0]);
    assert_string_equal(argv[0], "command");
    assert_null(argv[2]);
    assert_true(strlen(argv[1]) < sizeof filled_word);
    memcpy(filled_word, argv[1], strlen(argv[1]) + 1);
    filled_finish(&room);
    template_close(&t);
    return filled_word;
}

static void every_placeholder_has_its_part(void **state) {
    (void)state;
    assert_string_equal(fill("{}", mr_str("a/b.png")), "a/b.png");
    assert_string_equal(fill("{.}.jpg", mr_str("a/b.png")), "a/b.jpg");
    assert_string_equal(fill("{/}", mr_str("a/b.png")), "b.png");
    assert_string_equal(fill("{/.}", mr_str("a/b.png")), "b");
    assert_string_equal(fill("{//}", mr_str("a/b.png")), "a");
    assert_string_equal(fill("{key}", mr_str("a")), "the key");
    assert_string_equal(fill("{#}", mr_str("a")), "17");
    assert_string_equal(fill("<{}{}-{#}>", mr_str("a b")), "<a ba b-17>");
    assert_string_equal(fill("{x} { {{}} {key", mr_str("a")), "{x} { {a} {key");
    assert_string_equal(fill("", mr_str("a")), "");
    assert_string_equal(fill("{}{.}{/}", (mr_bytes){ 0 }), "");
}

static void paths_of_all_shapes(void **state) {
    (void)state;
    static const struct {
        const char *line, *stem, *base, *base_stem, *directory;
    } paths[] = {
        { "x", "x", "x", "x", "." },
        { "x.tar.gz", "x.tar", "x.tar.gz", "x.tar", "." },
        { "a.b/x", "a.b/x", "x", "x", "a.b" },
        { ".profile", ".profile", ".profile", ".profile", "." },
        { "a/.profile", "a/.profile", ".profile", ".profile", "a" },
        { "a/b/", "a/b/", "b", "b", "a" },
        { "/", "/", "/", "/", "/" },
        { "/x", "/x", "x", "x", "/" },
        { "a//b", "a//b", "b", "b", "a" },
        { "x.", "x", "x.", "x", "." },
        { "", "", "", "", "." },
    };
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        assert_string_equal(fill("{.}", mr_str(paths[i].line)), paths[i].stem);
        assert_string_equal(fill("{/}", mr_str(paths[i].line)), paths[i].base);
        assert_string_equal(fill("{/.}", mr_str(paths[i].line)), paths[i].base_stem);
        assert_string_equal(fill("{//}", mr_str(paths[i].line)), paths[i].directory);
    }
}

static void the_line_is_appended_without_a_placeholder(void **state) {
    (void)state;
    const char *const words[] = { "echo", "-n", NULL };
    struct template t;
    assert_int_equal(template_open(words, false, &t), 0);
    assert_true(t.append && !t.varies && !t.uses_key);
    struct parts parts = { .line = mr_str("{} {key}"), .number = 1 };
    struct filled room = { 0 };
    assert_int_equal(template_fill(&t, &parts, "A=b", &room), 0);
    assert_string_equal(room.argv[1], "-n");
    assert_string_equal(room.argv[2], "{} {key}"); // what the line holds is not filled in again
    assert_null(room.argv[3]);
    assert_string_equal(room.variables[0], "A=b");
    assert_null(room.variables[1]);
    filled_finish(&room);
    template_close(&t);

    const char *const numbered[] = { "{}", "{#}", "{key}", NULL };
    assert_int_equal(template_open(numbered, false, &t), 0);
    assert_true(!t.append && t.varies && t.uses_key && t.takes_line);
    template_close(&t);
    assert_int_equal(template_open(words, true, &t), 0);
    assert_false(t.append);
    template_close(&t);
}

static void a_zero_byte_fits_no_argument(void **state) {
    (void)state;
    const char *const words[] = { "echo", NULL };
    struct template t;
    assert_int_equal(template_open(words, false, &t), 0);
    struct parts parts = { .line = bytes_of("a\0b", 3), .number = 1 };
    struct filled room = { 0 };
    assert_int_equal(template_fill(&t, &parts, NULL, &room), MR_EINVAL);
    assert_non_null(strstr(error_text(), "--stdin"));
    filled_finish(&room);
    template_close(&t);
}

// ---- Scripts ----------------------------------------------------------------------------------

enum { WORDS_MOST = 12 };

// Words that are separated by tabs.
static void split(const char *text, char room[512], const char *words[WORDS_MOST]) {
    size_t count = 0;
    snprintf(room, 512, "%s", text);
    for (char *rest = room; rest;) {
        assert_true(count + 1 < WORDS_MOST);
        words[count++] = strsep(&rest, "\t");
    }
    words[count] = NULL;
}

// What a shell is given for this script.
static const char *rewritten(const char *script) {
    static char out[512];
    const char *const words[] = { "sh", "-c", script, "sh", NULL };
    struct parts parts = { .line = mr_str("$(id);`id`"), .key = mr_str("'\"\n"), .number = 1 };
    struct template t;
    struct filled room = { 0 };
    int err = template_open(words, true, &t);
    if (err < 0)
        return NULL;
    assert_int_equal(template_fill(&t, &parts, NULL, &room), 0);
    snprintf(out, sizeof out, "%s", room.argv[2]);
    filled_finish(&room);
    template_close(&t);
    return out;
}

// U1: in a shell's script a placeholder is a variable, quoted where it was not.
static void U1_placeholders_in_scripts_are_variables(void **state) {
    (void)state;
    static const char *const scripts[][2] = {
        { "echo {}", "echo \"${MILLRACE_BODY?}\"" },
        { "echo a{}b{key}", "echo a\"${MILLRACE_BODY?}\"b\"${MILLRACE_KEY?}\"" },
        { "echo \"a {} b\" {}", "echo \"a ${MILLRACE_BODY?} b\" \"${MILLRACE_BODY?}\"" },
        { "echo {.} {/} {//} {/.} {#} {id}",
          "echo \"${MILLRACE_STEM?}\" \"${MILLRACE_BASE?}\" \"${MILLRACE_DIR?}\" "
          "\"${MILLRACE_BASE_STEM?}\" \"${MILLRACE_NUMBER?}\" \"${MILLRACE_NUMBER?}\"" },
        { "x=1; cp {} \"$(basename {})$x\"",
          "x=1; cp \"${MILLRACE_BODY?}\" \"$(basename \"${MILLRACE_BODY?}\")$x\"" },
        { "a 'it''s' >{} && (cat <{})",
          "a 'it''s' >\"${MILLRACE_BODY?}\" && (cat <\"${MILLRACE_BODY?}\")" },
        { "echo {} ${#} ${key} ${id} # {}", "echo \"${MILLRACE_BODY?}\" ${#} ${key} ${id} # {}" },
        { "cat {} | sed s/a/b/; head -1 {}",
          "cat \"${MILLRACE_BODY?}\" | sed s/a/b/; head -1 \"${MILLRACE_BODY?}\"" },
        { "[ -e {} ] || A=1 make `uname` {}",
          "[ -e \"${MILLRACE_BODY?}\" ] || A=1 make `uname` \"${MILLRACE_BODY?}\"" },
        { "export X=1; echo \"[{}]\"", "export X=1; echo \"[${MILLRACE_BODY?}]\"" },
        { "./my.sh {}", "./my.sh \"${MILLRACE_BODY?}\"" },
    };
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        const char *got = rewritten(scripts[i][0]);
        assert_non_null(got);
        assert_string_equal(got, scripts[i][1]);
    }
}

// U1: what people write in scripts runs; only the placeholders change.
static void U1_common_scripts_are_accepted(void **state) {
    (void)state;
    static const char *const scripts[] = {
        "echo {} >> out",
        "echo {} >out 2>&1",
        "echo {} >&2; exit 1",
        "convert {} {.}.png",
        "curl -s {} | jq .",
        "[ -f {} ] && rm -- {}",
        "[ ! -e \"{}\" ] || test -n {key} && cp -- {} /tmp",
        "[ {} = a ] || [ \"{}\" != b ] || [ c = {} ] && echo {}",
        "if grep -q x {}; then mv {} a/; else rm -f {}; fi",
        "if ! grep -v {} f; then echo no; fi",
        "for i in 1 2 3; do curl -f {} && break; done",
        "while read -r l; do echo \"$l {key}\"; done <{} > {/}.out",
        "while read -r l; do echo \"$l\"; done < {}",
        "while read -r l; do echo \"$l\"; done < \"a/{}\"",
        "{ head -1 {}; tail -1 {}; } >> {.}.txt",
        "(cd {//} && tar czf {/.}.tgz {/}) > log",
        "printf '%s\\n' {} \"<{key}>\"",
        "printf \"%-10s|%s\\n\" {}",
        "printf %s\\\\n {}",
        "case {} in *.png|*.gif) convert {} x.jpg ;; *) echo {} ;; esac",
        "case {key} in\n  a) cat {} ;;\n  \"b c\" | d*)\n    ls {} ;;\nesac > {/}",
        "set -e; A=1 B=\"$HOME x\" make -C {}",
        "sudo rm -- {}; nice gzip -9 {}; time ls {}; exec ~/bin/tool {}",
        "find {} -type f | wc -l",
        "diff <(sort {}) <(sort {.}.b) > {}.diff",
        "a {} && \\\n  b {} \\\n  --size 3 | sort >{}.s",
        "# it's {}\ncat {} # '{}",
        "git -C {} pull || echo \"$(date) {}\" >&2",
        "sleep 1 & wait; ./build.sh {} | tee {}.log",
    };
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++)
        if (!rewritten(scripts[i]))
            fail_msg("refused: %s: %s", scripts[i], error_text());
}

static const char *const refused_scripts[] = {
    "echo '{}'",
    "echo '{key}' {}",
    "echo `basename {}`",
    "eval echo {}",
    "read {} < /dev/null",
    "f() { local {}=1; }; f",
    "arr[{}]=1",
    "mapfile -C {} -c 1 < list",
    "compgen -C {}",
    "{}",
    "a; {} b",
    "if {}; then a; fi",
    "sudo {}",
    "X=1 {}",
    "echo $(( {} ))",
    "echo $[{}]",
    "((x={}))",
    "[[ {} -eq 1 ]]",
    "cat <<E\n{}\nE",
    "echo \\{}",
    "echo $'{}'",
    "echo ${x:-{}}",
    "bash -c \"echo {}\"",
    "echo {} | sh",
    "ssh host rm {}",
    "awk {} file",
    "sed \"s/x/{}/\" f",
    "perl -e \"print {}\"",
    "trap {} EXIT",
    "echo \"{}",
    "echo 'a {}",
    "x={}; /bin/dash -c \"$x\"",
    ". {}",
    "declare {}=1",
    "printf -v {} x",
    "awk \"$(echo {})\"",
    "let x={}",
    "echo $(case {} in a) echo {} ;; esac)",
    // names that are no plain words
    "ev\\al {}",
    "e\"\"val {}",
    "'ev'al {}",
    "ev\\\nal {}",
    "$E {}",
    "`echo e`val {}",
    "$(echo eval) {}",
    "x=$(a)b {}",
    "echo {} | s\\h",
    "echo {} | while read x; do $x; done",
    "a; \"$x\" {}",
    // the value names the program
    "timeout 5 {}",
    "xargs {} </dev/null",
    "command -- {}",
    "exec -a x {}",
    "nice -n 5 {}",
    "env -i {}",
    ">out {}",
    "2>out {}",
    "exec 3<a {}",
    "echo a &>out {}",
    "a >&2; {}",
    "$(echo {})",
    "\"{}\"",
    "find . -exec {} ;",
    "time -p {}",
    "ls >&{}", // bash expands it twice
    "ls >& \"{}\"",
    "ls >&2{}",
    "ls >&$(echo {})",
    "( ( case x in a) {} ;; esac ) )",
    "case x in a) {} ;; esac",
    "case x in\na) b;;\n*) {} ;; esac",
    "case x in esac; ev\\al : esac {}",
    "(true) {}",
    "if { true } {}",
    "a && \\\n{}",
    "echo \"$\\\n({})\"",
    // builtins that run, evaluate or assign it
    "alias x={}\nx",
    "alias x=\"{}\"\nx",
    "hash -p {} ls; ls",
    "set -- {}; \"$@\"",
    "export X={}",
    "readonly {}",
    "exit {}",
    "wait -p {}",
    "jobs -x {}",
    "coproc {}",
    "test -v {}",
    "[ {} -eq 0 ]",
    "[ {} {key} ]",
    "[ -n \"$x\" -a {} ]",
    "printf {}",
    "printf \"{}\" a",
    "printf -v {} x",
    "printf \\-v {} x",
    "printf ''-v {} x",
    "printf >x {} y",
    "printf %d {}",
    "printf \"$f\" {}",
    "f() { $1; }; f {}",
    "f () { $1; }; f {}",
    "function f { $1; }; f {}",
    "() { \"$@\" } {}",
    "a=({})",
    // variables of the script
    "x={}; $x",
    "x={}; echo \"$x\"",
    "x+={}",
    "x=\"a {}\"; echo",
    "x=$(basename {}); $x",
    "x=\"$(echo \"{}\")\"",
    "x=$( (echo {}) )",
    "for x in {}; do $x; done",
    "for x in $(echo {}); do echo; done",
    "select x in {}; do :; done",
    "PS4={}; set -x; :",
    "PATH={}; ls",
    "LD_PRELOAD={} ls",
    "x={}; echo ${x@P}",
    "y={}; echo ${!y}",
    "x={}; echo ${a[x]}",
};

// U1: where a shell would not expand it, or would run, assign or evaluate it, it is refused.
static void U1_placeholders_that_cannot_be_variables_are_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof refused_scripts / sizeof *refused_scripts; i++) {
        if (rewritten(refused_scripts[i]))
            fail_msg("accepted: %s", refused_scripts[i]);
        assert_non_null(strstr(error_text(), "sh -c 'SCRIPT' sh {}"));
    }
    assert_null(rewritten("echo {}; timeout 5 {}"));
    assert_non_null(strstr(error_text(), "(at: timeout 5 {})")); // the place
}

// Commands: words are separated by tabs.
static const char *const refused[] = {
    "python3\t-c\tprint({})",
    "/usr/bin/python3.11\t-uc\t{}",
    "perl\t-lane\tprint {}",
    "perl\t-eprint {}",
    "node\t--eval={}",
    "node\t--print\t{}",
    "ruby\t-e\t{key}",
    "awk\t{}\tfile",
    "awk\t-F\t:\t{}",
    "sed\t-e\ts/{}//",
    "sed\t-n\ts/{}//p\tfile",
    "sed\tfile\t-e\t{}",
    "jq\t.{}",
    "psql\tdb\t-c\tselect {}",
    "sqlite3\tdb\tselect {}",
    "ssh\thost\techo {}",
    "ssh\t-p\t22\thost\t{}",
    "su\tann\t-c\tls {}",
    "env\t-S\tsh -c {}",
    "watch\tls\t{}",
    "nice\t-n\t5\tawk\t{}",
    "timeout\t5\tpython3\t-c\t{}",
    "fish\t-c\techo {}",
    "sh\t-c\t{}",
    "find\t.\t-exec\tsh\t-c\techo '{}'\t;",
    "bash\t--rcfile\tF\t-c\techo {}",
    "bash\t--init-file\tF\t-c\techo {}",
    "bash\t+x\t-c\techo {}",
    "bash\t-c\t-e\techo {}",
    "bash\t-ce\techo {}",
    "node\t-pe\t{}",
    "node18\t-e\t{}",
    "node\t--require\tX\t-e\t{}",
    "node\t--ev\t{}",
    "pwsh\t-Command\techo {}",
    "pwsh\t-c\techo\t{}",
    "perl\t-I\tlib\t-e\t{}",
    "perl\t-e\t1\t-e\t{}",
    "perl\t-n{}\tfile",
    "julia\t-t\t4\t-e\t{}",
    "osascript\t-l\tJavaScript\t-e\t{}",
    "python3\t--check-hash-based-pycs\talways\t-c\t{}",
    "python3\t-W\t-c\t-c\t{}",
    "awk\t--field-separator\t:\t{}",
    "sg\tgrp\t-c\tls {}",
    "runuser\t-u\tann\t-c\tls {}",
    "flock\tF\t-c\tls {}",
    "su\tann\t--\t-c\tls {}",
    "env\t-S\tbash -c\t{}",
    "node\t--{}",
    "ssh\t-M\thost\t{}",
    "php\t--run\t{}",
};

static const char *const accepted[] = {
    "python3\t-c\tprint(1)\t{}",
    "python3\tx.py\t-c\t{}",
    "perl\t-e\tprint\t{}",
    "awk\tBEGIN\t{}",
    "awk\t-f\tx.awk\t{}",
    "awk\t-v\tx={}\tBEGIN",
    "sed\t-e\ts/a/b/\t{}",
    "sed\t-n\t1p\t{}",
    "jq\t--arg\tx\t{}\t.a",
    "ssh\t{}\tuptime",
    "sqlite3\t{}\tselect",
    "sh\t-c\techo \"$1\"\tsh\t{}",
    "bash\tscript.sh\t{}",
    "env\tA={}\techo\t-S\t{}",
    "man\tsed\t{}",
    "sh\t-e\t-c\techo \"$1\"\tsh\t{}",
    "bash5\t-c\techo \"$1\"\tx\t-c\t{}",
    "bash\t--norc\tscript.sh\t{}",
    "node\t--inspect\tx.js\t{}",
    "python3\tscript.py\t{}",
    "perl\t-lane\tprint\t{}",
    "sed\t-i.bak\ts/a/b/\t--\t{}",
    "jq\t-r\t.a\t{}",
    "ssh-keygen\t-l\t-f\t{}",
    "script2.py\t-c\t{}",
    "psql\t-v\tx={}\t-f\tx.sql",
};

static const char *const rewrites[] = {
    "env\tA=1\t/bin/bash\t-o\tpipefail\t-lc\tls {}",
    "bash-static\t-c\tls {}",
    "bash5\t-c\tls {}",
    "bash\t--noprofile\t--norc\t-eo\tpipefail\t-c\tls {}",
};

static const struct {
    const char *command, *line;
    int err;
} lines_as_options[] = {
    { "python3\t{}", "-cprint(1)", MR_EINVAL },
    { "python3\t{}", "script.py", 0 },
    { "python3\t--\t{}", "-cprint(1)", 0 },
    { "python3\t./{}", "-c", 0 },
    { "python3\t-c\texit()\t{}", "-c", 0 },
    { "python3", "-cprint(1)", MR_EINVAL }, // appended
    { "sh\t{}\techo {key}", "-c", MR_EINVAL },
    { "sh\t{}\techo {key}", "+c", MR_EINVAL },
    { "sh\t{}-c\techo {key}", "", MR_EINVAL }, // "-c"
    { "sh\t-c\techo \"$1\"\tsh\t{}", "-c", 0 },
    { "sh\tscript.sh\t{}", "-c", 0 },
    { "sh\t{#}\t{}", "-c", 0 }, // a number is no option
    { "env\t-i\tbash\t{}", "-c", MR_EINVAL },
    { "perl\t-w\t{}", "-eexit", MR_EINVAL },
    { "perl\t-e\texit\t{}", "-eexit", MR_EINVAL },
    { "ssh\t{}\tls", "-oProxyCommand=id", MR_EINVAL },
    { "jq\t.a\t{}", "--from-file=x", MR_EINVAL },
    { "jq\t--arg\tx\t{}\t.a", "-x", 0 }, // an option's argument
    { "gzip\t{}", "-9", 0 },             // reads no scripts
};

// U1: a line does not become an option with which a program would read it as a script.
static void U1_lines_are_no_options_that_name_scripts(void **state) {
    (void)state;
    char room[512];
    const char *words[WORDS_MOST];
    for (size_t i = 0; i < sizeof lines_as_options / sizeof *lines_as_options; i++) {
        struct template t;
        struct filled filled = { 0 };
        struct parts parts = { .line = mr_str(lines_as_options[i].line), .number = 1 };
        split(lines_as_options[i].command, room, words);
        assert_int_equal(template_open(words, false, &t), 0);
        if (template_fill(&t, &parts, NULL, &filled) != lines_as_options[i].err)
            fail_msg("%s with %s", lines_as_options[i].command, lines_as_options[i].line);
        filled_finish(&filled);
        template_close(&t);
    }
}

// U1: the program that reads a script is found, with any commands before it.
static void U1_scripts_are_found_in_commands(void **state) {
    (void)state;
    struct template t;
    char room[512];
    const char *words[WORDS_MOST];
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        split(refused[i], room, words);
        if (template_open(words, true, &t) != MR_EINVAL)
            fail_msg("accepted: %s", refused[i]);
    }
    for (size_t i = 0; i < sizeof accepted / sizeof *accepted; i++) {
        split(accepted[i], room, words);
        if (template_open(words, true, &t) != 0)
            fail_msg("refused: %s: %s", accepted[i], error_text());
        assert_int_equal(t.variables, 0);
        template_close(&t);
    }
    for (size_t i = 0; i < sizeof rewrites / sizeof *rewrites; i++) {
        split(rewrites[i], room, words);
        if (template_open(words, true, &t) != 0)
            fail_msg("refused: %s: %s", rewrites[i], error_text());
        assert_int_not_equal(t.variables, 0);
        template_close(&t);
    }
    split("sh\t-c", room, words); // the line, appended, would be the script
    assert_int_equal(template_open(words, false, &t), MR_EINVAL);
}

// ---- Durations --------------------------------------------------------------------------------

static void durations_have_units(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int64_t ms;
    } good[] = { { "250ms", 250 },
                 { "30s", 30000 },
                 { "5m", 300000 },
                 { "2h", 7200000 },
                 { "7d", 604800000 },
                 { "1ms", 1 },
                 { "36500d", INT64_C(3153600000000) } };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        int64_t ms = 0;
        assert_int_equal(duration_read(good[i].text, &ms), 0);
        assert_int_equal(ms, good[i].ms);
    }
    static const char *const bad[] = {
        "",   "5", "0s", "-1s", "5 s", "5x", "s", "1e3s", "5sec", "36501d", "99999999999999999999s",
        "+5s"
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int64_t ms = 42;
        assert_int_equal(duration_read(bad[i], &ms), MR_EINVAL);
        assert_int_equal(ms, 42);
    }
    int64_t ms;
    duration_read("5", &ms);
    assert_non_null(strstr(error_text(), "5s"));
}

// ---- Signals ----------------------------------------------------------------------------------

// A pair is one, however often it comes; who presses again a moment later means it.
static void signals_that_come_together_are_one(void **state) {
    (void)state;
    struct interrupts i = { 0 };
    assert_true(interrupt_counts(&i, 5));
    assert_false(interrupt_counts(&i, 5));
    assert_false(interrupt_counts(&i, 5 + INTERRUPT_APART_US - 1));
    assert_true(interrupt_counts(&i, 5 + INTERRUPT_APART_US));
    assert_false(interrupt_counts(&i, 6 + INTERRUPT_APART_US));
    assert_int_equal(i.count, 2);
}

// ---- Starts -----------------------------------------------------------------------------------

static struct gate gate_with(struct gate_limits limits, double load, uint64_t available) {
    return (struct gate){ .limits = limits, .look = { load, available } };
}

static void starts_keep_their_distance(void **state) {
    (void)state;
    struct gate g = gate_with((struct gate_limits){ .delay_ms = 500 }, 0, 0);
    assert_int_equal(gate_wait_ms(&g, 1000), 0);
    gate_note_start(&g, 1000);
    assert_int_equal(gate_wait_ms(&g, 1001), 499);
    g.running = 0; // also if nothing runs
    assert_int_equal(gate_wait_ms(&g, 1499), 1);
    assert_int_equal(gate_wait_ms(&g, 1500), 0);
}

// Each start counts as load until the next look, so that not all start together.
static void load_and_memory_hold_back_all_but_one(void **state) {
    (void)state;
    struct gate g = gate_with((struct gate_limits){ .has_load = true, .load = 3 }, 1.5, 0);
    gate_note_start(&g, 1000);
    assert_int_equal(gate_wait_ms(&g, 1000), 0);
    gate_note_start(&g, 1000);
    assert_int_equal(gate_wait_ms(&g, 1000), GATE_LOOK_MS);
    g.running = 0;
    assert_int_equal(gate_wait_ms(&g, 1000), 0);

    g = gate_with((struct gate_limits){ .memory_free = 1000 }, 0, 999);
    assert_int_equal(gate_wait_ms(&g, 1000), 0);
    gate_note_start(&g, 1000);
    assert_int_equal(gate_wait_ms(&g, 1000), GATE_LOOK_MS);
    g.look.available = 1000;
    assert_int_equal(gate_wait_ms(&g, 1000), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(key_is_a_field),
        cmocka_unit_test(key_is_what_a_regex_finds),
        cmocka_unit_test(key_is_a_member_of_json),
        cmocka_unit_test(keys_that_cannot_be),
        cmocka_unit_test(long_keys_have_channels_of_their_own),
        cmocka_unit_test(every_placeholder_has_its_part),
        cmocka_unit_test(paths_of_all_shapes),
        cmocka_unit_test(the_line_is_appended_without_a_placeholder),
        cmocka_unit_test(a_zero_byte_fits_no_argument),
        cmocka_unit_test(U1_placeholders_in_scripts_are_variables),
        cmocka_unit_test(U1_common_scripts_are_accepted),
        cmocka_unit_test(U1_placeholders_that_cannot_be_variables_are_refused),
        cmocka_unit_test(U1_lines_are_no_options_that_name_scripts),
        cmocka_unit_test(U1_scripts_are_found_in_commands),
        cmocka_unit_test(durations_have_units),
        cmocka_unit_test(signals_that_come_together_are_one),
        cmocka_unit_test(starts_keep_their_distance),
        cmocka_unit_test(load_and_memory_hold_back_all_but_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
