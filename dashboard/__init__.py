"""A page that shows a run while it is made, and after: reads its folder, changes nothing in it.

following.py reads files that grow, run_reader.py turns them into sections, board.py keeps these
encoded for whoever watches, app.py serves them with the static page.
"""
