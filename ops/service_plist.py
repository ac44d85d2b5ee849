"""A launchd job, as launchd.plist(5) describes it. The property list is written by plistlib, which escapes."""

import plistlib

from .service_spec import Service

THROTTLE_S = 30


def label(service_name: str) -> str:
    return f"local.soloist.{service_name}"


def render_plist(service: Service) -> bytes:
    """The job's property list.

    It is started again after a crash, not after a wanted end. launchd cannot be told which exit codes are hopeless,
    so a wrong configuration is tried once in THROTTLE_S seconds, and says why in the log each time.
    """
    return plistlib.dumps(
        {
            "Label": label(service.name),
            "ProgramArguments": list(service.words),
            "WorkingDirectory": "/",
            "EnvironmentVariables": dict(service.environment),
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            "ThrottleInterval": THROTTLE_S,
            "ExitTimeOut": service.stop_within,
            "ProcessType": "Interactive",  # else launchd slows it down as background work
            "SoftResourceLimits": {"NumberOfFiles": 4096},
            "StandardOutPath": str(service.log),
            "StandardErrorPath": str(service.log),
            "Umask": 0o077,
        },
        sort_keys=False,
    )
