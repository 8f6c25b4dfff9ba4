#!/usr/bin/env bash
# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# Becomes one machine: boot.sh HOME BASE HOSTNAME, run by the hypervisor in the machine's own namespaces.
set -euo pipefail
home=$1 base=$2 name=$3
root=$home/root

hostname "$name"
mount -t overlay overlay -o "lowerdir=$base:/,upperdir=$home/disk,workdir=$home/work" "$root"
mount -t proc proc "$root/proc"
# Of the kernel's own files, what tells one boot from the next has to differ per machine and boot.
cp /proc/sys/kernel/random/uuid "$home/boot_id"
mount --bind "$home/boot_id" "$root/proc/sys/kernel/random/boot_id"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount --bind "$home/ephemeral" "$root/mnt"

mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in null zero full random urandom tty; do
  touch "$root/dev/$device"
  mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"

echo "$name" >"$root/etc/hostname"
cp "$home/hosts" "$root/etc/hosts"
operator=$root/root
install -d -m 700 "$operator/.ssh"
install -m 600 "$home/authorized_keys" "$operator/.ssh/authorized_keys"
if [ ! -e "$home/booted" ]; then
  rm -f "$root"/etc/ssh/ssh_host_*
  ssh-keygen -q -t ed25519 -N '' -f "$root/etc/ssh/ssh_host_ed25519_key"
  : >"$root/etc/machine-id"
  touch "$home/booted"
fi

cd /
exec env -i container=graceful-lab PATH=/usr/sbin:/usr/bin:/sbin:/bin \
  unshare --root="$root" /lib/systemd/systemd --log-target=console --show-status=false
