"""What the system says of a process: resident memory, processor time."""

import os
import subprocess


def rss_bytes(pid: int) -> tuple[int, int | None]:
    """Resident memory of a process now and at its peak (None where the system does not say)."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as status:
            fields = dict(line.split(":", 1) for line in status)
        return int(fields["VmRSS"].split()[0]) * 1024, int(fields["VmHWM"].split()[0]) * 1024
    except FileNotFoundError:
        shown = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, check=True)
        return int(shown.stdout) * 1024, None


def cpu_seconds(pid: int) -> float | None:
    """Processor time that a process has used, user and system (proc(5)); None where the system does not say."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
            fields = stat.read().rpartition(")")[2].split()
    except FileNotFoundError:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
