"""Other queues on the same job, each in a process of its own. They are no dependency of tocsin."""
