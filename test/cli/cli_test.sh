#!/usr/bin/env bash
# The command: what it says of stores that are sound, torn, damaged, empty or none at all, what it
# makes of bad usage, and that help, man page and completion know every command. Speaks TAP.
#     cli_test.sh BUILD     where BUILD/millrace and BUILD/test/store_story are
build=$(realpath "${1:-build}")
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
export NO_COLOR=1 MILLRACE_URL=mem: # no command here may reach an engine that happens to run
unset MILLRACE_SIDE_FILE MILLRACE_KEY
number=0 failed=0
commands='help serve dev run flow work emit state snooze progress schedule\ apply schedule push call await cancel job jobs epic bench stages channels workers
    epics dead why retry drop due pause resume drain stage inbox\ install inbox\ run auth\ add auth\ list auth\ remove store\ check store\ dump store\ repair store\ copy store\ init cluster\ status cluster\ drain cluster\ move'

ok() { # name; the last command's exit code decides
    local code=$?
    number=$((number + 1))
    if [ $code -eq 0 ]; then
        echo "ok $number - $1"
    else
        echo "not ok $number - $1"
        sed 's/^/# /' out err
        failed=1
    fi
}

mr() { # arguments; leaves `out`, `err`
    "$build/millrace" "$@" >out 2>err
}

# exits CODE ARGUMENTS…: with that code, a sentence on stderr if it is not 0, and nothing there
# that people would not understand.
exits() {
    local expected=$1
    shift
    mr "$@"
    local code=$?
    [ $code -eq "$expected" ] || { echo "exit $code, not $expected" >>err; return 1; }
    [ $code -eq 0 ] || [ $code -eq 1 ] || grep -q '^millrace: ' err
}

says() { grep -qe "$1" out; }
complains() { grep -qe "$1" err; }
hyphenated() { ! grep -qE '"[a-z0-9]+_[a-z0-9_]+": ' out; } # as the wire names its fields
is_json() { python3 -m json.tool out >/dev/null 2>>err && hyphenated; }
is_json_lines() { python3 -m json.tool --json-lines out >/dev/null 2>>err && hyphenated; }
fresh() { rm -rf "$1" && cp -r sound "$1"; }
sums() { (cd "$1" && md5sum -- *); }

# flip FILE OFFSET: changes a byte.
flip() {
    python3 -c 'import sys
with open(sys.argv[1], "r+b") as f:
    f.seek(int(sys.argv[2])); byte = f.read(1)[0]
    f.seek(int(sys.argv[2])); f.write(bytes([byte ^ 0x55]))' "$1" "$2"
}

each_command() { # function: called with a command's words
    local words=()
    eval "words=($commands)"
    for name in "${words[@]}"; do
        "$1" "$name" || { echo "not for '$name'" >>err; return 1; }
    done
}

# ---- Help --------------------------------------------------------------------------------------

table_is_known() { mr help && [ "$(grep -c '^  [a-z]' out)" -eq 48 ]; } # commands, and the usage
table_is_known
ok "help lists as many commands as are tested here"

in_overview() { mr help && says "^  $1 "; }
each_command in_overview
ok "help lists every command"

has_example() { mr help $1 && says '^Examples:' && says "^  millrace $1"; }
each_command has_example
ok "help of every command has an example"

option_helps() { mr help $1 && cp out expected && mr $1 --help && cmp -s out expected; }
each_command option_helps
ok "--help after a command is its help"

fits_screen() { mr help $1 && [ "$(wc -L <out)" -le 80 ]; }
each_command fits_screen && mr --help && [ "$(wc -L <out)" -le 80 ]
ok "help fits in 80 columns"

exits 0 --version && says '^millrace [0-9]*\.[0-9]*\.[0-9]*$'
ok "--version"

in_man() { grep -q "^\.SS millrace $1" "$build/millrace.1"; }
each_command in_man
ok "the man page knows every command"

man_is_well_formed() {
    command -v groff >/dev/null || return 0
    groff -man -Tutf8 -ww "$build/millrace.1" >out 2>err && [ ! -s err ]
}
man_is_well_formed
ok "the man page is well formed"

man_fits() {
    command -v groff >/dev/null || return 0
    groff -man -Tascii -rLL=80n -P-cbou "$build/millrace.1" >out && [ "$(wc -L <out)" -le 80 ] &&
        says '^ *{//}  *the directory before it  *{#}  *its number$' && says '^ *rate  *starts per time, as 100/s, 30/m or 5/h  *none$' &&
        says '^       steps:$' && says '^         - { name: split, flat_map: words }$'
}
man_fits
ok "the man page fits in 80 columns, and its tables are tables"

complete_words() { # words of a command line; the last is being completed
    bash -c 'compopt() { :; }; source "$1"; shift
        COMP_WORDS=(millrace "$@") COMP_CWORD=$#
        _millrace && echo "${COMPREPLY[@]}"' - "$build/millrace.bash" "$@" >out 2>err
}
completes() {
    local first=${1%% *} second=${1#* }
    complete_words "" && says "\\b$first\\b" || return 1
    [ "$first" = "$second" ] || { complete_words "$first" "" && says "\\b$second\\b"; } || return 1
    mr help $1 && grep -E '^  -' out | grep -oE -- '--[a-z-]*' >options
    complete_words $1 -- || return 1
    while read -r option; do says "^\\(.* \\)\\?$option\\b" || return 1; done <options
}
each_command completes
ok "the completion knows every command and option"

mkdir -p data && complete_words store check file && says '^file:$' &&
    complete_words store check file : da && says '^data$' && rmdir data
ok "the completion finds directories"

installs() {
    DESTDIR=$dir/place meson install -C "$build" --no-rebuild --quiet >out 2>err &&
        [ -n "$(find place -path '*/man/man1/millrace.1')" ] &&
        [ -n "$(find place -path '*/bash-completion/completions/millrace.bash')" ]
}
installs
ok "man page and completion are installed"

# ---- Bad usage ---------------------------------------------------------------------------------

exits 2 && complains 'millrace help'
ok "no command"
exits 2 store && complains 'millrace help store'
ok "half a command"
exits 2 stor check x && complains "did you mean 'store check'"
ok "a command nearly called so"
exits 2 store chekc x && complains "did you mean 'store check'"
ok "a second word nearly called so"
exits 2 xyzzy && complains "millrace help lists"
ok "no such command"
exits 2 help xyzzy && exits 2 help store xyzzy
ok "help of no such command"

for command in 'emit stage body' 'state' 'state --set x' 'snooze 1s' 'progress 1 2'; do
    exits 2 $command && complains 'not inside a job'
    ok "outside a job: $command"
done
refuses_options() { exits 2 $1 --nosuch && complains "no option '--nosuch'"; }
each_command refuses_options
ok "every command refuses an unknown option"
takes_any='^\(work\|schedule\|retry\|drop\|due\|stage\)$'
takes_none='^\(help\|schedule\|serve\|dev\|state\|bench\|stages\|workers\|epics\|auth list\|cluster status\|dead\|why\|inbox .*\)$'
is() { echo "$1" | grep -q "$2"; }
refuses_more() {
    is "$1" "$takes_any" || { exits 2 $1 a b c d && complains "one argument too many\|is missing before"; }
}
each_command refuses_more
ok "every command refuses too many arguments"
refuses_none() { is "$1" "$takes_none" || { exits 2 $1 && complains "usage: millrace $1"; }; }
each_command refuses_none
ok "every command that needs arguments misses them"
exits 2 store dump file:x --form 1 && complains 'did you mean --from'
ok "an option nearly called so"
exits 2 store dump file:x --from && exits 2 store dump file:x --from 1x &&
    exits 2 store dump file:x --id=-1 && exits 2 store dump file:x --json=1
ok "values of options are looked at"
for url in data file: mem: millrace://127.0.0.1:7411 nats://a; do
    exits 2 store check "$url" || break
done && exits 2 store check data && complains 'did you mean file:data'
ok "URLs that are none, or not here"

# ---- No stores ---------------------------------------------------------------------------------

mkdir empty foreign && echo hello >foreign/letter && echo >file
no_store() {
    local second=
    [ "$1" = "store copy" ] && second=file:new
    [ "$1" = "store init" ] && { exits 2 $1 file:$where && complains postgres://; return; }
    [ "${1%% *}" != store ] || { exits 3 $1 file:$where $second && complains "$where"; }
}
nowhere_a_store() { for where in missing empty foreign file; do each_command no_store || return; done; }
nowhere_a_store
ok "what is no store cannot be opened, by any command"
[ ! -e missing ] && [ ! -e new ] && [ -z "$(ls empty)" ] && [ "$(ls foreign)" = letter ]
ok "and is left as it is"

# ---- A sound store -----------------------------------------------------------------------------

"$build/test/store_story" make sound >out 2>err
ok "a store with something of everything"
sums sound >before

exits 0 store check file:sound && says 'is sound' && says '^ *4 *1 *0 *8 *2 *0 *1  orders$' &&
    says 'mail (paused)' && [ "$(wc -L <out)" -le 80 ]
ok "check lists the content"
lines_up() { # names begin where the heading says, with two spaces before them
    awk '/ stage$/ { at = index($0, "stage"); next }
         at && substr($0, at - 2, 3) !~ /^  [^ ]/ { bad = 1 }
         END { exit bad || !at }' out
}
lines_up
ok "the table lines up"
exits 0 store check file:sound --json && is_json && says '"sound": true' && says '"name": "mail"'
ok "check --json"

exits 0 store dump file:sound && says 'push .*job .*, stage bulk' && says "attempt 1, dead" &&
    says "stage orders, key 'ann', .*state 1 byte" && says 'rate 7/s'
ok "dump lists the history"
exits 0 store check file:sound --json && entries=$(sed 's/.*"entries": \([0-9]*\).*/\1/' out) &&
    exits 0 store dump file:sound && [ "$(wc -l <out)" -eq "$entries" ]
ok "dump has a line for each entry"
exits 0 store dump file:sound --body && says "body 'to: ann'" && says 'body .\\x00\\xfe"' &&
    says "key 'bob\\\\n\\\\'\\\\xff'" && LC_ALL=C grep -q '[^ -~]' out
[ $? -eq 1 ]
ok "dump --body escapes what is not printable"
exits 0 store dump file:sound --json --body && is_json_lines && says '"body-base64": "AP4i"' &&
    says '"key-base64": "Ym9iCif/"' && says '"text": "no \\"route\\""'
ok "dump --json is one object a line, with any bytes"
exits 0 store dump file:sound --id 9 && says 'fail .*job 9, stage mail, attempt [0-9]*, dead' && says ', halts' &&
    [ -z "$(grep -v 'job 9' out)" ]
ok "dump --id"
exits 0 store dump file:sound --stage mail && says 'fail .*job 9' && says "stage 2, name 'mail'" &&
    ! says 'orders\|bulk\|epoch' && exits 1 store dump file:sound --stage nosuch &&
    complains 'file:sound; millrace store check'
ok "dump --stage, also events of its jobs"
exits 0 store dump file:sound && at=$(sed -n '20s/^ *\([0-9]*\) .*/\1/p' out) &&
    tail -n +20 out >rest && exits 0 store dump file:sound --from "$at" && cmp -s out rest &&
    exits 0 store dump file:sound --from $((at - 1)) && cmp -s out rest
ok "dump --from"

exits 0 store repair file:sound && says 'is sound; nothing was changed' &&
    exits 0 store repair file:sound --dry-run && exits 0 store repair file:sound --json && is_json
ok "repair has nothing to do"
sums sound | cmp -s - before
ok "it is unchanged"

# ---- Copies ------------------------------------------------------------------------------------

fresh original
exits 0 store copy file:original file:copy && says 'copied from file:original to file:copy'
ok "copy"
sums original | cmp -s - before
ok "the original is unchanged"
exits 0 store check file:copy && says '^ *800 .* bulk$'
ok "the copy is sound"
exits 0 store dump file:copy && ! says ' trim '
ok "what is over was left out"
mkdir second && exits 0 store copy file:copy file:second/ --json && is_json
ok "copy of the copy, into an empty directory"
"$build/test/store_story" same copy second >out 2>err
ok "both copies continue in the same way"
fresh original && rm -rf copy && exits 0 store copy file:original file:copy &&
    "$build/test/store_story" same original copy >out 2>err
ok "original and copy continue in the same way"
exits 3 store copy file:original file:copy && complains 'copy is not empty' &&
    exits 3 store copy file:original file:foreign && exits 3 store copy file:original file:original
ok "copy refuses a target with something in it"
mkdir left.copying && exits 3 store copy file:original file:left && complains 'left.copying' &&
    [ ! -e left ]
ok "copy refuses to continue an incomplete copy"
fresh original && head -c 64 /dev/urandom >original/running && rm -rf copy &&
    exits 0 store copy file:original file:copy && cmp -s original/running copy/running
ok "what ran when the engine died is noted in the copy too"

# ---- Shards ------------------------------------------------------------------------------------

fresh original
exits 0 store copy file:original file:spread --shards 3 && exits 0 store check file:spread &&
    says '^  shards  *3$' && says '^ *4 *1 *0 *8 *2 *0 *1  orders$' && says 'mail (paused)'
ok "copy into three shards holds the same"
exits 0 store copy file:spread file:wider --shards 5 --json && is_json && says '"shards": 5' &&
    exits 0 store copy file:wider file:back --shards 1 && exits 0 store check file:back
ok "into five, and back into one"
"$build/test/store_story" same original back >out 2>err
ok "ids, order, names, numbers, states, policies and epics are as they were"
rm -rf again && exits 0 store copy file:spread file:again && exits 0 store check file:again &&
    says '^  shards  *3$'
ok "without --shards there are as many as before"
exits 3 store copy file:original file:spread --shards 3 && complains 'spread is not empty' &&
    exits 2 store copy file:original file:other --shards 0 &&
    exits 2 store copy file:original file:other --shards 65 && [ ! -e other ]
ok "a copy in shards is refused where something is, and so is a number that cannot be"
exits 0 store dump file:spread && cut -c1-3 out | sort -u | tr -d ' \n' | grep -qx 012 &&
    exits 0 store dump file:spread --shard 1 --json && is_json_lines && says '"shard": 1' &&
    ! says '"shard": [02]' && exits 2 store dump file:spread --shard 3
ok "dump names the shard of an entry"
# All stages of this store are in shard 0.
for shard in 0 1 2; do sums spread/shard-$shard >before-$shard; done
flip spread/shard-0/"$(ls spread/shard-0 | grep 'seg$' | head -1)" 9000
exits 1 store check file:spread && says '^  spread/shard-0/.*seg, offset' && ! says 'shard-[12]' &&
    exits 0 store repair file:spread --dry-run && sums spread/shard-1 | cmp -s - before-1
ok "check names the damaged shard"
exits 0 store repair file:spread && says 'Repaired spread/shard-0' && says 'spread is sound now' &&
    sums spread/shard-1 | cmp -s - before-1 && sums spread/shard-2 | cmp -s - before-2 &&
    ls spread/shard-0/*.damaged >out && exits 0 store check file:spread
ok "repair of one shard leaves the others alone"
rm -rf spread/shard-2 && exits 1 store check file:spread && says 'spread/shard-2' &&
    exits 3 stages --at file:spread
ok "a shard that is missing is noticed"
exits 0 push mail late --at file:again --key ann && exits 0 stages --at file:again && says 'mail' &&
    exits 2 serve --store file:again --shards 2 --listen 127.0.0.1:0 && complains 'store copy'
ok "a spread store is opened as it is, and with no other number"

# ---- In use ------------------------------------------------------------------------------------

fresh used
exec 9<used/lock && flock 9
exits 0 store check file:used && complains 'used is in use by process' && says 'is sound'
ok "check of a store in use"
exits 0 store dump file:used && complains 'used is in use by process'
ok "dump of a store in use"
exits 3 store repair file:used && complains 'in use by process .*stop that first'
ok "repair refuses a store in use"
exits 3 store copy file:used file:other && complains 'in use by process' && [ ! -e other ]
ok "copy refuses a store in use"
exec 9<&-

# ---- Torn and damaged --------------------------------------------------------------------------

last() { ls "$1"/*.seg | tail -1; }

fresh torn && "$build/test/store_story" die torn
"$build/millrace" store dump file:torn >all
flip "$(last torn)" $(($(tail -1 all | awk '{ print $1 }') % 65536 + 10))
exits 0 store check file:torn && says 'is sound' && exits 0 store dump file:torn &&
    [ "$(wc -l <out)" -eq $(($(wc -l <all) - 1)) ]
ok "a torn end is no damage"

fresh damaged
first=$(ls damaged/*.seg | head -1)
flip "$first" 20000
exits 1 store check file:damaged && says "$first, offset [0-9]*: " &&
    says 'millrace store repair file:damaged'
ok "check names file, offset and the way out"
exits 1 store check file:damaged --json && is_json && says '"sound": false'
ok "check --json of a damaged store"
sums damaged >before && exits 0 store repair file:damaged --dry-run && says 'A repair would' &&
    says 'Nothing was changed' && sums damaged | cmp -s - before
ok "repair --dry-run lists its changes and makes none"
exits 0 store repair file:damaged --dry-run --json && is_json && says '"changed": false'
ok "repair --dry-run --json"
exits 3 store copy file:damaged file:fromdamaged || exits 1 store copy file:damaged file:fromdamaged
[ ! -e fromdamaged ] && [ ! -e fromdamaged.copying ] && complains 'store repair file:damaged'
ok "a damaged store is not copied"
exits 0 store repair file:damaged && says 'given up' && says 'is sound now' &&
    [ -e "$first.damaged" ]
ok "repair reports what was lost and keeps a copy of it"
exits 0 store check file:damaged && exits 0 store repair file:damaged && says 'nothing was changed'
ok "then it is sound"
fresh damaged && flip "$first" 20000 && exits 0 store repair file:damaged --json && is_json &&
    says '"sound": true' && says '"changed": true'
ok "repair --json"

fresh damaged
for segment in damaged/*.seg; do flip "$segment" 9000; done
exits 1 store check file:damaged && exits 0 store repair file:damaged &&
    exits 0 store check file:damaged && "$build/examples/counter" damaged >out 2>err
ok "damage everywhere is repaired, and an engine opens what is left"

fresh damaged
rm "$first" "${first%.seg}.idx"
exits 1 store check file:damaged && exits 0 store repair file:damaged && says 'missing' &&
    says 'lost-' && exits 0 store check file:damaged && "$build/examples/counter" damaged >out 2>err
ok "without its first segment: stages get a name, the head is where it is"

fresh damaged && rm "$first"
exits 1 store check file:damaged && exits 0 store repair file:damaged &&
    exits 0 store check file:damaged && "$build/examples/counter" damaged >out 2>err
ok "an old index does not interfere"

fresh damaged && rm damaged/store
exits 1 store check file:damaged && says 'damaged/store' && exits 0 store repair file:damaged &&
    exits 0 store check file:damaged
ok "without its store file"

fresh newer && "$build/test/store_story" newer newer && sums newer >before
is_newer() { exits 3 $1 file:newer ${2:-} && complains 'newer Millrace'; }
is_newer "store check" && is_newer "store dump" && is_newer "store repair" &&
    is_newer "store copy" file:other && sums newer | cmp -s - before
ok "a store of a newer version is left to the newer Millrace, by every command"

"$build/millrace" store dump file:sound >/dev/full 2>err
[ $? -eq 1 ] && complains 'could not be written'
ok "output that cannot be written is a failure"

echo "1..$number"
exit $failed
