# Brig's script in the sandbox: runs programs and copies files. Called by root; programs and all access to
# the workspace are user 65534. Its directory belongs to root.
B=/var/lib/brig
W=/workspace

fail() { echo "$1" >&2; exit 4; }

drop() {
  setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all "$@"
}

# Every process of an execution has its id in the environment, and most are in its process group.
end() {
  for round in 1 2 3 4 5 6 7 8; do
    [ ! -s "$B/$1/pid" ] || kill -s KILL -- "-$(cat "$B/$1/pid")" 2>/dev/null
    found=$(grep -lzx "BRIG_EXECUTION=$1" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3)
    [ -n "$found" ] || return 0
    kill -KILL $found 2>/dev/null
  done
}

feed() {
  n=0
  while :; do
    if [ -e "$d/in/$n.ok" ]; then
      cat "$d/in/$n" || return
      rm -f "$d/in/$n" "$d/in/$n.ok"
      n=$((n + 1))
    elif [ -e "$d/in/end" ]; then
      # The last piece may have come between the two looks.
      [ -e "$d/in/$n.ok" ] || return
    else
      sleep 0.05
    fi
  done
}

# Ends an execution that writes too much, or whose owner is gone.
watch() {
  left=$1
  while [ "$left" -gt 0 ]; do
    sleep 1
    left=$((left - 1))
    used=$(du -skc "$W" /tmp 2>/dev/null | tail -n 1 | cut -f 1)
    if [ "${used:-0}" -gt "$2" ]; then echo disk >"$d/over"; break; fi
  done
  end "$id"
}

# Enters the directory of a path below the workspace, never through a link. The last part stays in $name.
walk() {
  cd "$W" || fail "there is no workspace"
  rest=$1
  while :; do
    case $rest in */*) ;; *) break ;; esac
    part=${rest%%/*}
    rest=${rest#*/}
    [ ! -L "./$part" ] || fail "its path contains a symbolic link"
    [ -z "$2" ] || [ -e "./$part" ] || mkdir "./$part" 2>/dev/null || fail "its directory can't be created"
    [ -d "./$part" ] || fail "its directory does not exist"
    cd -P "./$part" || fail "its directory can't be entered"
  done
  name=$rest
  [ ! -L "./$name" ] || fail "it is a symbolic link"
}

case $1 in
check)
  for tool in setsid setpriv prlimit base64 find du grep mkfifo id; do
    command -v "$tool" >/dev/null || fail "the disk image lacks $tool"
  done
  env --default-signal=INT true || fail "the disk image lacks env of GNU"
  mkdir -p "$W" && chown 65534:65534 "$W" || fail "$W can't be created"
  drop sh "$B/brig.sh" dropped || fail "programs would have privileges"
  # Left over from before a snapshot.
  found=$(grep -lz '^BRIG_EXECUTION=' /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3)
  [ -z "$found" ] || kill -KILL $found 2>/dev/null
  exit 0
  ;;
dropped)
  [ "$(id -u)" = 65534 ] && grep -q '^CapEff:[[:space:]]*0*$' /proc/self/status &&
    grep -q '^CapPrm:[[:space:]]*0*$' /proc/self/status && grep -q '^NoNewPrivs:[[:space:]]*1$' /proc/self/status
  ;;
start)
  # Never twice, whatever happens to the request.
  mkdir "$B/$2/started" || exit 17
  setsid sh "$B/brig.sh" supervise "$2" "$3" "$4" "$5" "$6" "$7" </dev/null >/dev/null 2>&1 &
  : >"$B/$2/begun"
  ;;
supervise)
  id=$2 processes=$3 file=$4 disk=$5 seconds=$6
  d=$B/$id
  input=/dev/null
  if [ "$7" = 1 ]; then
    input=$d/input
    mkdir -p "$d/in"
    mkfifo "$input"
    (feed >"$input") &
    feeder=$!
  fi
  setsid prlimit "--nproc=$processes:$processes" "--fsize=$file:$file" --core=0:0 \
    setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all \
    sh "$d/program" <"$input" >"$d/out" 2>"$d/err" 9>"$d/why" &
  child=$!
  echo "$child" >"$d/pid"
  watch "$seconds" "$disk" 9>&- &
  watcher=$!
  wait "$child"
  code=$?
  end "$id"
  kill "$watcher" $feeder 2>/dev/null
  {
    echo "$code $(wc -c <"$d/out") $(wc -c <"$d/err") $(cat "$d/over" "$d/why" 2>/dev/null)"
    times
  } >"$d/exit.new"
  mv "$d/exit.new" "$d/exit"
  ;;
kill)
  end "$2"
  # Saves a request in the common case.
  for round in 1 2 3 4 5 6 7 8 9 10; do
    [ ! -e "$B/$2/exit" ] || exec cat "$B/$2/exit"
    sleep 0.05
  done
  ;;
signal)
  # What a terminal sends goes to the whole group, other signals to the program.
  case $3 in 1 | 2 | 3 | 15 | 18 | 20) group=- ;; *) group= ;; esac
  [ ! -s "$B/$2/pid" ] || kill -s "$3" -- "$group$(cat "$B/$2/pid")"
  ;;
output)
  # What came after so many bytes of each stream.
  tail -c "+$(($3 + 1))" "$B/$2/out" | head -c 196608 | base64 -w 0
  echo
  tail -c "+$(($4 + 1))" "$B/$2/err" | head -c 196608 | base64 -w 0
  ;;
put) drop sh "$B/brig.sh" place "$2" "$3" "$4" ;;
place)
  umask 022
  walk "$4" make
  [ ! -e "./$name" ] || [ -f "./$name" ] || fail "it is not a regular file"
  new=".brig-$2"
  cat "$B/$2" >"$new" && chmod "$3" "$new" && mv -f "$new" "./$name" && exit 0
  rm -f "$new"
  fail "it can't be written"
  ;;
get) drop sh "$B/brig.sh" show "$3" >"$B/$2" ;;
show)
  walk "$2"
  [ -e "./$name" ] || fail "not found"
  [ -f "./$name" ] || fail "it is not a regular file"
  cat "./$name" || fail "it can't be read"
  ;;
list) drop sh "$B/brig.sh" entries "$2" ;;
entries)
  walk "$2"
  [ -d "./$name" ] || fail "it is not a directory"
  cd -P "./$name" || fail "it can't be entered"
  find . -mindepth 1 -maxdepth 1 -printf '%y/%s/%m/%f\0' | base64 -w 0
  ;;
used) du -sb "$W" | cut -f 1 ;;
*) fail "unknown: $1" ;;
esac
