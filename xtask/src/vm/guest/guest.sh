#!/bin/bash
# Runs as root in the guest. Makes the guest what its settings promise, checks that it is, runs the tests as an
# unprivileged user, writes the results to the second disk and ends the machine.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
. /cofferdam-guest/settings
TEST_USER=cofferdam-test
HOME_DIR=/home/$TEST_USER
CI=$HOME_DIR/ci
RESULTS=/cofferdam-guest/results
CONTROLLERS='cpu cpuset io memory pids'
mkdir -p "$RESULTS"

# However it ends, the host hears of it and the machine stops.
finish() {
    echo "$1" >"$RESULTS/status"
    dmesg >"$RESULTS/dmesg.txt" 2>&1
    tar -C "$RESULTS" -cf /dev/vdb .
    sync
    echo "guest: ends with $1"
    echo b >/proc/sysrq-trigger
    sleep 60
}
trap 'finish 1' EXIT

# --- what the guest becomes -----------------------------------------------------------------------------------------

mount_what_udev_and_systemd_would() {
    mkdir -p /dev/pts /dev/shm
    mount -t devpts -o gid=5,mode=620,ptmxmode=666 devpts /dev/pts
    mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs /dev/shm
    mount -t tmpfs -o mode=755,nosuid,nodev tmpfs /run
    mount -t cgroup2 -o nsdelegate,memory_recursiveprot cgroup2 /sys/fs/cgroup
    mkdir -p /run/lock
    ln -sfn /proc/self/fd /dev/fd
    ln -sfn /proc/self/fd/0 /dev/stdin
    ln -sfn /proc/self/fd/1 /dev/stdout
    ln -sfn /proc/self/fd/2 /dev/stderr
    chmod 666 /dev/tty /dev/ptmx
    hostname cofferdam-guest
}

mount_disks() {
    mkdir -p /mnt/disk
    mount -t ext4 -o prjquota /dev/vda /mnt/disk || return
    mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs /tmp || return
    id "$TEST_USER" >/dev/null 2>&1 || useradd --no-create-home --home-dir "$HOME_DIR" --shell /bin/bash "$TEST_USER"
    # Overlays of the product need an upper layer that is no overlay itself: the home is on the disk.
    mkdir -p "$HOME_DIR" && mount --bind /mnt/disk/home "$HOME_DIR" || return
    mkdir -p /mnt/disk/scratch && chown -R "$TEST_USER:" /mnt/disk/home /mnt/disk/scratch || return
    # The toolchain may lie in a home that others cannot enter.
    mkdir -p "$CI/toolchain" && mount --bind "$TOOLCHAIN" "$CI/toolchain"
}

# As systemd does it for a user: the directory and the files that move processes, and no limit.
delegate_cgroup() {
    local root=/sys/fs/cgroup own
    own=$root/user-$(id -u "$TEST_USER")
    echo "+${CONTROLLERS// / +}" >"$root/cgroup.subtree_control" || return
    mkdir -p "$own/runner" || return
    echo "+${CONTROLLERS// / +}" >"$own/cgroup.subtree_control" || return
    local dir
    for dir in "$own" "$own/runner"; do
        chown "$TEST_USER:" "$dir" "$dir"/cgroup.{procs,threads,subtree_control} || return
    done
    RUNNER=$own/runner
}

switch_off() {
    [[ $USER_NAMESPACES == yes ]] || echo 0 >/proc/sys/user/max_user_namespaces || return
    # Who may use the device is udev's to say, which runs in no guest.
    if [[ $FUSE == yes ]]; then chmod 666 /dev/fuse; else rm /dev/fuse; fi
}

# --- what the guest is ----------------------------------------------------------------------------------------------

wrong=0
fact() { # NAME EXPECTED ACTUAL
    if [[ $3 == $2 ]]; then # the expected may be a pattern
        echo "ok $1: $3" | tee -a "$RESULTS/facts.txt"
    else
        echo "WRONG $1: $3, expected $2" | tee -a "$RESULTS/facts.txt"
        wrong=1
    fi
}

facts() {
    local abi
    fact kernel "$KERNEL.*" "$(uname -r)"
    fact architecture x86_64 "$(uname -m)"
    # Asked of the kernel, not of the product: landlock_create_ruleset(NULL, 0, LANDLOCK_CREATE_RULESET_VERSION)
    abi=$(perl -e 'print syscall(444, 0, 0, 1)')
    fact 'Landlock ABI' "$LANDLOCK" "$abi"
    fact 'cgroup file system' cgroup2fs "$(stat -f -c %T /sys/fs/cgroup)"
    fact user "$TEST_USER" "$(as_user id -un)"
    fact capabilities 0000000000000000 "$(as_user sed -n 's/^CapEff:\s*//p' /proc/self/status)"
    fact 'user namespaces' "$USER_NAMESPACES" "$(as_user unshare --user true 2>/dev/null && echo yes || echo no)"
    fact /dev/fuse "$FUSE" "$(as_user sh -c '[ -w /dev/fuse ]' && echo yes || echo no)"
    fact 'file system of the disk' ext2/ext3 "$(stat -f -c %T /mnt/disk/scratch)"
    fact 'project quota' '*prjquota*' "$(grep ' /mnt/disk ' /proc/mounts | cut -d' ' -f4)"
    "facts_$INIT"
}

facts_script() {
    local own=${RUNNER#/sys/fs/cgroup}
    fact 'own cgroup' "0::$own" "$(as_user cat /proc/self/cgroup)"
    fact controllers "$CONTROLLERS" "$(sorted "$RUNNER/cgroup.controllers")"
    fact delegated "$CONTROLLERS" "$(sorted "${RUNNER%/*}/cgroup.subtree_control")"
    fact 'user makes a cgroup' yes "$(as_user mkdir "${RUNNER%/*}/made" && rmdir "${RUNNER%/*}/made" && echo yes)"
}

facts_systemd() {
    local uid manager
    uid=$(id -u "$TEST_USER")
    manager=/sys/fs/cgroup/user.slice/user-$uid.slice/user@$uid.service
    fact 'pid 1' systemd "$(cat /proc/1/comm)"
    fact 'user manager' running "$(as_user systemctl --user is-system-running 2>&1)"
    fact 'session bus' "unix:path=/run/user/$uid/bus" "$(as_user printenv DBUS_SESSION_BUS_ADDRESS)"
    fact 'own cgroup' "0::/user.slice/user-$uid.slice/session-*.scope" "$(as_user cat /proc/self/cgroup)"
    fact delegated '*cpu*memory*pids*' "$(sorted "$manager/cgroup.controllers")"
    fact 'scope' "0::/user.slice/user-$uid.slice/user@$uid.service/*.scope" \
        "$(as_user systemd-run --user --scope --quiet --property=Delegate=yes cat /proc/self/cgroup 2>&1)"
}

sorted() {
    tr ' ' '\n' <"$1" | grep -E "^(${CONTROLLERS// /|})\$" | sort | tr '\n' ' ' | sed 's/ $//'
}

# --- the tests ------------------------------------------------------------------------------------------------------

# An environment from scratch; with systemd, that of a login.
as_user() {
    local environment=(
        LANG=C.UTF-8 TERM=xterm
        PATH="$CI/bin:$CI/toolchain/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
        INSTA_UPDATE=no INSTA_WORKSPACE_ROOT="$CI/source"
        COFFERDAM_TEST_GUEST="$GUEST" COFFERDAM_TEST_DISK=/mnt/disk/scratch
    )
    if [[ $INIT == systemd ]]; then
        runuser -l "$TEST_USER" -c "exec env ${environment[*]@Q} ${*@Q}"
        return
    fi
    (
        echo "$BASHPID" >"$RUNNER/cgroup.procs" || exit 1
        # A user of a machine for audio: priorities that the sandbox has to take away.
        ulimit -r 10 || exit 1
        exec setpriv --reuid "$TEST_USER" --regid "$TEST_USER" --init-groups --reset-env \
            env HOME="$HOME_DIR" "${environment[@]}" "$@"
    )
}

# What only root of a machine can do; the few tests that are about it have it in their name.
as_root() (
    # Ten thousand connections take twenty thousand descriptors.
    ulimit -n 65536 || exit 1
    env -i HOME=/root LANG=C.UTF-8 TERM=xterm PATH="$CI/bin:$CI/toolchain/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin" \
        INSTA_UPDATE=no INSTA_WORKSPACE_ROOT="$CI/source" \
        COFFERDAM_TEST_GUEST="$GUEST" COFFERDAM_TEST_DISK=/mnt/disk "$@"
)

# run_tests WHO FILTER REPORT
run_tests() {
    local status
    "$1" sh -c "cd '$CI/source' && exec timeout '$SECONDS_FOR_TESTS' cargo-nextest nextest run --profile vm --no-tests=pass \
        --binaries-metadata '$CI/binaries.json' --cargo-metadata '$CI/cargo.json' \
        --target-dir-remap '$CI/target' --workspace-remap '$CI/source' --color never --show-progress none -E \"\$1\"" sh "$2" </dev/null
    status=$?
    [[ ! -e $CI/source/target/nextest/vm/junit.xml ]] || mv "$CI/source/target/nextest/vm/junit.xml" "$RESULTS/$3"
    return "$status"
}

# --- the run --------------------------------------------------------------------------------------------------------

set -o pipefail
[[ $INIT == systemd ]] || mount_what_udev_and_systemd_would
mount_disks || finish 1
[[ $INIT == systemd ]] || delegate_cgroup || finish 1
switch_off || finish 1
facts
[[ $wrong == 0 ]] || finish 1
echo "guest: facts hold after $(cut -d' ' -f1 /proc/uptime) s"
status=0
run_tests as_user "($TESTS) - test(guest_root)" junit.xml || status=$?
run_tests as_root "($TESTS) & test(guest_root)" junit-root.xml || status=$?
trap - EXIT
finish "$status"
