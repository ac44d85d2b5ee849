"""What is run around a daemon: models, doctor, bench, guardian, council, service."""
