"""Operations on the disks of stopped bookies."""

OWNER = "pulsar-admin"
