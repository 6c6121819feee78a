"""The worker: claims jobs of queues, runs their handlers, settles them. It runs beside a host or far from one."""
