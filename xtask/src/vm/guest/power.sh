#!/bin/bash
# Runs as root in a guest whose power may be cut at any time. One step for each boot: prepare a disk, commit, look at what
# is there; open a session, look for it. Says what it found on the console.
export PATH=/mnt/disk/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 HOME=/mnt/disk/home
. /cofferdam-guest/settings
FILES=300

finish() {
    cd /
    umount /mnt/disk
    echo "guest: ends $1"
    # The console writes it out meanwhile.
    sleep 2
    echo b >/proc/sysrq-trigger
    sleep 60
}
fail() {
    echo "guest: $*"
    finish badly
}

mkdir -p /dev/pts /dev/shm /mnt/disk
mount -t devpts devpts /dev/pts
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=1777 tmpfs /tmp
ln -sfn /proc/self/fd /dev/fd
ln -sfn /proc/self/fd/1 /dev/stdout
hostname cofferdam-guest
mount -t ext4 /dev/vda /mnt/disk || fail 'no disk'

# Every name with its kind, mode and target, and what is in it.
picture() {
    find "$1" -mindepth 1 -printf '%P %y %m %l\n' | sort
    (cd "$1" && find . -type f -print0 | sort -z | xargs -0 sha256sum)
}

# What the session does to the project.
change() {
    cat <<'END'
i=0
while [ $i -lt $FILES ]; do
    case $((i % 4)) in
        0) echo "new $i" > d$((i % 10))/f$i ;;
        1) rm d$((i % 10))/f$i ;;
        2) echo "more" >> d$((i % 10))/f$i ;;
    esac
    mkdir -p new/n$((i % 7))
    echo "added $i" > new/n$((i % 7))/f$i
    i=$((i + 1))
done
chmod 700 d3; rm -r d4; echo file > d4; ln -s d3/f3 link
END
}

prepare() {
    cd /mnt/disk/project || fail 'no project'
    local i
    for ((i = 0; i < FILES; i++)); do
        mkdir -p d$((i % 10))
        echo "old $i" >d$((i % 10))/f$i
    done
    echo old >/mnt/disk/second/f
    cp -a /mnt/disk/project /mnt/disk/expected
    change >/mnt/disk/change.sh
    (cd /mnt/disk/expected && FILES=$FILES sh -e /mnt/disk/change.sh) || fail 'no changes'
    picture /mnt/disk/project >/mnt/disk/before.txt
    picture /mnt/disk/expected >/mnt/disk/after.txt
    cmp -s /mnt/disk/before.txt /mnt/disk/after.txt && fail 'nothing changes'
    sandbox run --mode static --transaction -- sh -ec "FILES=$FILES; $(cat /mnt/disk/change.sh)" || fail 'no session'
    picture /mnt/disk/project | cmp - /mnt/disk/before.txt || fail 'the host was touched'
    echo 'guest: prepared'
    finish well
}

commit() {
    cd /mnt/disk/project || fail 'no project'
    echo 'guest: commit begins'
    sandbox commit || fail 'no commit'
    echo 'guest: committed'
    sleep 600
}

look() {
    cd /mnt/disk/project || fail 'no project'
    sandbox changes --all
    picture . >/tmp/now.txt
    if cmp -s /tmp/now.txt /mnt/disk/after.txt; then
        echo 'guest: tree is new'
    elif cmp -s /tmp/now.txt /mnt/disk/before.txt; then
        echo 'guest: tree is old'
        sandbox commit || fail 'it cannot be committed again'
        picture . | cmp - /mnt/disk/after.txt || fail 'a second commit is not whole'
    else
        diff /tmp/now.txt /mnt/disk/after.txt | head -20
        fail 'tree is mixed'
    fi
    finish well
}

open() {
    cd /mnt/disk/second || fail 'no project'
    sandbox run --mode static --transaction -- sh -c 'echo new > f; echo more > g; echo inside; sleep 600' >/tmp/said &
    until grep -q inside /tmp/said; do sleep 0.1; done
    # The records reach the disk in the end; what is written without waiting for it may be there in part.
    sync
    echo 'guest: session writes'
    sleep 600
}

lost() {
    cd /mnt/disk/second || fail 'no project'
    sandbox changes
    sandbox commit >/tmp/said 2>&1 && fail 'what was lost was committed'
    cat /tmp/said
    grep -q 'are lost' /tmp/said || fail 'it is not said to be lost'
    [[ $(ls) == f && $(cat f) == old ]] || fail 'the host was touched'
    sandbox rollback || fail 'it cannot be dropped'
    echo 'guest: lost and said'
    finish well
}

"$STEP"
