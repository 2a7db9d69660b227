#!/bin/busybox sh
# Pid 1 of a guest that has no tree but its first file system: busybox and the programs that are shipped. Moves to a file system
# that can be pivoted, becomes a small machine with one ordinary user, and tries sessions as that user. Says `guest: ok NAME` or
# `guest: WRONG NAME: ...` for each check, and `guest: end` last.
export PATH=/bin
if [ "$1" != again ]; then
    /bin/busybox mount -t tmpfs -o mode=755 tmpfs /new
    /bin/busybox cp -a /bin /modules /init /new/
    exec /bin/busybox switch_root /new /init again
fi
/bin/busybox mkdir -p /proc /sys /dev /run /tmp /var/tmp /etc /usr/bin /usr/lib /home/dev/project/.git /home/dev/.ssh /srv
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
for place in /dev/shm /tmp /var/tmp; do mount -t tmpfs -o mode=1777 tmpfs "$place"; done
mount -t tmpfs -o mode=755 tmpfs /run
for link in fd:fd stdin:fd/0 stdout:fd/1 stderr:fd/2; do ln -sfn "/proc/self/${link#*:}" "/dev/${link%%:*}"; done
for module in /modules/*; do insmod "$module" || echo "guest: WRONG module: $module does not load"; done
ip link set lo up
hostname cofferdam-guest
chmod 666 /dev/fuse
echo 'root:x:0:0::/root:/bin/sh
dev:x:1000:1000::/home/dev:/bin/sh' >/etc/passwd
echo 'root:x:0:
dev:x:1000:' >/etc/group
echo 'a secret' >/home/dev/.ssh/id_ed25519
echo 'a note' >/home/dev/note
echo 'what is served' >/srv/page
chown -R dev:dev /home/dev

# --- trying ---------------------------------------------------------------------------------------------------------

# The command in /home/dev/project, as an ordinary user.
as_dev() {
    printf '%s\n' "cd /home/dev/project && exec env -i HOME=/home/dev USER=dev PATH=/bin TERM=dumb \"\$@\"" >/tmp/as-dev.sh
    su -s /bin/sh -- dev /tmp/as-dev.sh "$@"
}

# check NAME STATUS TEXT COMMAND...: it ends with that status and says that text.
check() {
    name=$1 status=$2 text=$3
    shift 3
    said=$(as_dev "$@" 2>&1 </dev/null)
    got=$?
    case "$got:$said" in
        "$status:"*"$text"*) echo "guest: ok $name" ;;
        *) echo "guest: WRONG $name: status $got, said: $(echo "$said" | tr '\n' '|')" ;;
    esac
}

# question NAME ANSWER STATUS TEXT: a first access waits, is answered from outside, and comes out so.
question() {
    (as_dev sandbox run --on-unknown ask -- cat /home/dev/note </dev/null; echo "status $?") >/tmp/asked 2>&1 &
    tries=0
    until as_dev sandbox questions 2>/dev/null | grep -q /home/dev/note || [ $tries -gt 60 ]; do
        tries=$((tries + 1))
        sleep 1
    done
    as_dev sandbox "$2" 1 >/dev/null 2>&1
    wait $!
    if grep -q "$4" /tmp/asked && grep -q "^status $3\$" /tmp/asked; then
        echo "guest: ok $1"
    else
        echo "guest: WRONG $1: $(tr '\n' '|' </tmp/asked)"
    fi
}

echo "guest: $(uname -srm)"
as_dev sandbox doctor
check 'static mode runs a command' 0 'uid=1000' sandbox run --mode static -- id
check 'it is this machine' 0 aarch64 sandbox run --mode static -- uname -m
check 'an exit code is passed on' 7 '' sandbox run --mode static -- sh -c 'exit 7'
check 'the project is written' 0 made sandbox run --mode static -- sh -c 'echo made >file; cat file'
check 'what was written is on the host' 0 made cat /home/dev/project/file
check 'a secret is hidden' 1 'No such file' sandbox run --mode static -- cat /home/dev/.ssh/id_ed25519
check 'the rest is read-only' 1 'Read-only' sandbox run --mode static -- sh -c 'echo x >/home/dev/note'
check 'mount is refused and told' 1 'mount' sandbox run --mode static -- mount -t tmpfs tmpfs /tmp
check 'unshare is refused' 1 'Operation not permitted' sandbox run --mode static -- unshare -m true
check 'a set-user-ID bit is refused' 1 'not permitted' sandbox run --mode static -- chmod 4755 file
check 'setns is the end of a session' 126 'an attempt to escape' sandbox run --mode static -- sh -c 'nsenter -t $$ -m true'
check 'pids are its own' 0 '' sandbox run --mode static -- sh -c '[ "$(ls /proc | grep -c "^[0-9]")" -lt 6 ]'
check 'a time limit holds' 124 '' sandbox run --mode static --timeout 2s -- sleep 60
check 'the network is its own' 1 '' sandbox run --mode static --network none -- ping -c 1 -W 1 127.0.0.2
check 'a transaction keeps the project' 0 '' sandbox run --transaction -- sh -c 'echo changed >file'
check 'it is as it was' 0 made cat /home/dev/project/file
check 'the difference is shown' 0 '+changed' sandbox diff
check 'a commit brings it' 0 '' sandbox commit
check 'it is changed' 0 changed cat /home/dev/project/file
question 'a question is answered with yes (FUSE)' approve 0 'a note'
question 'a question is answered with no (FUSE)' deny 1 'denied'
(httpd -p 127.0.0.1:8080 -h /srv)
check 'a port of the host is reached where it is given' 0 'what is served' \
    sandbox run --host-port 8080 -- wget -q -O - http://127.0.0.1:8080/page
check 'and not where it is not' 1 '' sandbox run -- wget -q -O - http://127.0.0.1:8080/page
rm /dev/fuse
question 'a question is answered with yes (system calls)' approve 0 'a note'
question 'a question is answered with no (system calls)' deny 1 'denied'
mknod -m 666 /dev/fuse c 10 229
as_dev sandbox verify
check 'every wall that can be checked holds' 0 '' sandbox verify
echo "guest: after $(cut -d' ' -f1 /proc/uptime) s"
echo 'guest: end'
sleep 1
echo o >/proc/sysrq-trigger
sleep 60
