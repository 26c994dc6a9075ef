"""The report that people look at: one HTML file that opens from disk and asks for nothing else.

`facts` makes plain values of a search, `packing` makes them small, `page` makes the file of them
and of the parts in this folder: `page.html`, `page.css` and the scripts, in the order of
`page.SCRIPTS`.
"""
