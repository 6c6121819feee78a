"""tocsin: durable scheduling for Python, one actor per tenant."""
