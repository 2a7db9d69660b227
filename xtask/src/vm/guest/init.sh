#!/bin/busybox sh
# Pid 1 of the initramfs. Makes a root out of the host's tree, read-only, with a memory file system over it, and goes there.
export PATH=/bin
/bin/busybox mkdir -p /proc /sys /dev /host /memory /new
/bin/busybox --install -s /bin
. /cofferdam-guest/settings

fail() {
    echo "guest: $*"
    echo o >/proc/sysrq-trigger
    sleep 60
}

mount -t proc proc /proc || fail 'no /proc'
mount -t sysfs sysfs /sys || fail 'no /sys'
mount -t devtmpfs devtmpfs /dev || fail 'no /dev'
ip link set lo up || fail 'no loopback'
for module in $(cat /cofferdam-guest/modules); do
    insmod "/modules/$module" || fail "module $module does not load"
done
mount -t virtiofs -o ro host /host || fail 'the host shares no tree'
mount -t tmpfs -o mode=755 tmpfs /memory || fail 'no tmpfs'
mkdir /memory/upper /memory/work
mount -t overlay -o lowerdir=/host,upperdir=/memory/upper,workdir=/memory/work overlay /new || fail 'no overlay'

cp -r /cofferdam-guest /new/cofferdam-guest
for directory in proc sys dev; do
    mount --move "/$directory" "/new/$directory" || fail "/$directory does not move"
done
if [ "$INIT" = systemd ]; then
    mkdir -p /new/etc/systemd/system
    cp /cofferdam-guest/cofferdam-guest.service /new/etc/systemd/system/
    # Housekeeping of the host's tree, and what waits for hardware.
    for unit in timers.target systemd-tmpfiles-setup.service systemd-update-utmp.service systemd-udev-trigger.service; do
        ln -sf /dev/null "/new/etc/systemd/system/$unit"
    done
    # Without an id systemd takes this for the first boot, and enables what the distribution presets.
    echo 0123456789abcdef0123456789abcdef >/new/etc/machine-id
    exec switch_root /new /lib/systemd/systemd --show-status=no --unit=cofferdam-guest.service
fi
exec switch_root /new /bin/bash /cofferdam-guest/guest.sh
