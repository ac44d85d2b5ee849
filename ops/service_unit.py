"""A systemd unit, as systemd.service(5), systemd.exec(5) and systemd.syntax(7) describe it."""

from collections.abc import Iterator

from .service_spec import HOPELESS, Service

WATCHDOG_S = 120
# What any unit may ask for, a user's own included.
MODEST = (
    "NoNewPrivileges=yes", "LockPersonality=yes", "RestrictRealtime=yes", "RestrictSUIDSGID=yes",
    "SystemCallArchitectures=native", "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK", "UMask=0077",
)  # fmt: skip
# What needs a mount namespace or capabilities, so the system's manager. No PrivateDevices: a GPU is a device.
STRICT = (
    "CapabilityBoundingSet=", "ProtectSystem=strict", "PrivateTmp=yes", "ProtectClock=yes", "ProtectControlGroups=yes",
    "ProtectHostname=yes", "ProtectKernelLogs=yes", "ProtectKernelModules=yes", "ProtectKernelTunables=yes",
    "ProtectProc=invisible", "RestrictNamespaces=yes",
)  # fmt: skip


def unit_name(service_name: str) -> str:
    return f"soloist-{service_name}.service"


def render_unit(service: Service, *, run_as: str | None, notifies: bool) -> str:
    """run_as: the account of a system unit; None: a user's own unit. notifies: the command speaks sd_notify(3)."""
    sections = {
        "Unit": _unit(service),
        "Service": _service(service, run_as, notifies),
        "Install": iter([f"WantedBy={'multi-user' if run_as else 'default'}.target"]),
    }
    return "\n".join(f"[{name}]\n" + "".join(f"{line}\n" for line in lines) for name, lines in sections.items())


def _unit(service: Service) -> Iterator[str]:
    yield f"Description=Soloist: {service.name}"
    yield "After=network.target"
    yield "StartLimitIntervalSec=600"
    yield "StartLimitBurst=10"


def _service(service: Service, run_as: str | None, notifies: bool) -> Iterator[str]:
    yield f"Type={'notify' if notifies else 'exec'}"
    if notifies:
        yield "NotifyAccess=main"
        yield f"WatchdogSec={WATCHDOG_S}"
    yield f"ExecStart={' '.join(quoted(word) for word in service.words)}"
    yield "WorkingDirectory=/"
    for name, value in service.environment.items():
        yield f"Environment={quoted(f'{name}={value}', variables=False)}"
    yield "Restart=on-failure"
    yield "RestartSec=5"
    yield f"RestartPreventExitStatus={' '.join(map(str, HOPELESS))}"
    yield f"TimeoutStopSec={service.stop_within}"
    yield "KillMode=mixed"
    yield "LimitNOFILE=4096"
    yield from MODEST
    if run_as:
        yield f"User={run_as}"
        yield f"ReadWritePaths=-{quoted(service.environment['HOME'], variables=False)}"
        yield from STRICT


def quoted(word: str, *, variables: bool = True) -> str:
    """One word of a command line. variables: `$` is special there, too."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return '"' + (escaped.replace("$", "$$") if variables else escaped) + '"'
