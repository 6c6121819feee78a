"""The dashboard: pages at `/ui` and `/i/{instance}/ui`, rendered here, that work without a script and better with one.

To add a page:

1. Write a module, such as `pools.py`, with a frozen dataclass of what the page shows, and `async def show(asked)` that
   reads the ports of `asked.port` and returns one. Decide there, not in the template. Ask `await asked.may(action,
   resource)` before anything that HTTP guards by another action than the page's own, and before an act is offered.
2. Write `templates/pools.html`: it extends `frame.html`, and has the value as `v`, the frame as `frame`, the macros of
   `parts.html` as `parts`, and `url(path, **query)`. A part that changes by itself has an `id` and `data-live`: the
   script exchanges it.
3. Put a `Page` into `PLACES` of the module, and these into those of `pages.py`. The navigation shows it, if
   `navigation.py` has its name.
4. What changes something is an `Act`: `ask` says what would be done (on a page, or in a dialog where there is a
   script), `do` does it and says what was done. Both are refused to whom HTTP refuses the action of that name. Link to
   it with `parts.act`. InvalidInputError from `do` shows the form again.

Everything shown is escaped. Pages hold no inline script, style or style attribute: the browser refuses those.
"""
