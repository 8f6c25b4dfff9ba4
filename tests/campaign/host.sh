#!/bin/sh
# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# The service of a loopback host: host.sh HOME do|undo|probe|save. What happens is logged before it does.
cd "$1" || exit 1
log() { echo "$(date +%s.%N) $1" >>log; }
case $2 in
do)
  [ ! -e broken ] || { echo "The service does not stop." >&2; exit 1; }
  [ -e drained ] || { log drained; touch drained; }
  ;;
undo) [ ! -e drained ] || { log back; rm drained; } ;;
probe) [ -e drained ] ;;
save) log saved ;;
esac
