#!/usr/bin/env bash
# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# Installs packages into an overlay on this machine's root, never on the machine: base.sh DIRECTORY PACKAGE...
# Run in a mount and pid namespace of its own; the layer is then DIRECTORY/layer.
set -euo pipefail
directory=$1
shift
root=$directory/root
mkdir -p "$directory"/{layer,work,root}
mount -t overlay overlay -o "lowerdir=/,upperdir=$directory/layer,workdir=$directory/work" "$root"
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"
# Nothing may start while it is being installed.
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod 755 "$root/usr/sbin/policy-rc.d"

export DEBIAN_FRONTEND=noninteractive
chroot "$root" apt-get update -qq
chroot "$root" apt-get install -y -qq --no-install-recommends -o Dpkg::Use-Pty=0 "$@"

rm -f "$root/usr/sbin/policy-rc.d"
find "$root/var/cache/apt/archives" -name '*.deb' -delete
: >"$root/etc/fstab"
# A machine starts ssh and what its scenario enables, and nothing that belongs to real hardware.
units=$root/etc/systemd/system
find "$units" -type l -delete
mkdir -p "$units/multi-user.target.wants"
ln -sf /lib/systemd/system/ssh.service "$units/multi-user.target.wants/ssh.service"
ln -sf /lib/systemd/system/multi-user.target "$units/default.target"
for unit in systemd-timesyncd.service systemd-udevd.service systemd-udev-trigger.service systemd-networkd.service \
  systemd-resolved.service systemd-logind.service getty.target console-getty.service apt-daily.timer \
  apt-daily-upgrade.timer; do
  ln -sf /dev/null "$units/$unit"
done
# Packages that start a cluster with an instance nobody asked for.
rm -rf "$root"/etc/postgresql/*/main "$root"/var/lib/postgresql/*/main
